"""source_archive: a tar.gz of the sources that targets are built from, so that they can be built without Bazel."""

load("//tools/bzl:units.bzl", "is_unit")

_Sources = provider(doc = "Files of the tree.", fields = {"files": "a depset"})

_ATTRIBUTES = ["deps", "srcs", "hdrs", "textual_hdrs"]
_EXTENSIONS = ["cc", "h"]

def _sources_aspect_impl(_target, ctx):
    files = []
    below = []
    for attribute in _ATTRIBUTES:
        for each in getattr(ctx.rule.attr, attribute, None) or []:
            if _Sources in each:
                below.append(each[_Sources].files)
            for file in each.files.to_list():
                if file.extension in _EXTENSIONS and not file.owner.workspace_name and not is_unit(file):
                    files.append(file)
    return [_Sources(files = depset(files, transitive = below))]

_sources_aspect = aspect(implementation = _sources_aspect_impl, attr_aspects = _ATTRIBUTES)

def _source_archive_impl(ctx):
    files = depset(ctx.files.files, transitive = [each[_Sources].files for each in ctx.attr.targets])
    places = {}
    for file in files.to_list():
        places[file] = file.short_path if file.is_source else "generated/" + file.short_path
    for label, folder in ctx.attr.others.items():
        for file in label.files.to_list():
            places[file] = folder + "/" + file.basename
    manifest = ctx.actions.declare_file(ctx.label.name + ".files")
    ctx.actions.write(manifest, "".join(["%s %s\n" % (file.path, place) for file, place in places.items()]))
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [manifest.path, ctx.attr.folder, ctx.outputs.archive.path] +
                    ["%s=%s" % each for each in ctx.attr.headers.items()],
        inputs = places.keys() + [manifest],
        outputs = [ctx.outputs.archive],
        mnemonic = "PackSources",
    )

source_archive = rule(
    implementation = _source_archive_impl,
    doc = "FOLDER.tar.gz, which unpacks to FOLDER: files at their places in the tree, generated ones in generated/.",
    attrs = {
        "targets": attr.label_list(doc = "of C++, whose sources and headers it has", aspects = [_sources_aspect]),
        "files": attr.label_list(doc = "more files", allow_files = True),
        "others": attr.label_keyed_string_dict(doc = "more files, and the folder of each", allow_files = True),
        "headers": attr.string_dict(doc = "files and folders in /usr/include for third_party/include, and their packages"),
        "folder": attr.string(mandatory = True),
        "archive": attr.output(mandatory = True),
        "_pack": attr.label(default = "//tools/bzl:pack_sources.sh", allow_single_file = True, executable = True, cfg = "host"),
    },
)
