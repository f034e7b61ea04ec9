"""A header that is compiled once for all files that include it first: g++ takes FOLDER/HEADER.gch for HEADER.

`object` is a cc_library of one source that is compiled with `-x c++-header`, so that it has the flags of the files that will
read it: the g++ that finds other flags, as any other compiler, reads the header itself.
"""

def _precompiled_header_impl(ctx):
    folder = ctx.label.name + ".include"
    header = ctx.actions.declare_file("%s/%s" % (folder, ctx.attr.header))
    precompiled = ctx.actions.declare_file("%s/%s.gch" % (folder, ctx.attr.header))
    objects = [
        object
        for input in ctx.attr.object[CcInfo].linking_context.linker_inputs.to_list()
        if input.owner == ctx.attr.object.label
        for library in input.libraries
        for object in library.pic_objects or library.objects
    ]
    ctx.actions.write(header, "#include_next <%s>\n" % ctx.attr.header)
    ctx.actions.symlink(output = precompiled, target_file = objects[0])
    include = header.path[:-len(ctx.attr.header) - 1]
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, precompiled]),
        system_includes = depset([include]),
    ))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.string(mandatory = True),
        "object": attr.label(mandatory = True, providers = [CcInfo]),
    },
)
