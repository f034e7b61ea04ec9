#!/usr/bin/python3
"""Checks what the compiler does not: file length, who includes whom, words of unfinished work, comments, links of pages, format.

Prints each finding as path:line: message, then "N passed, N failed": one test per rule.
"""
import ast
import concurrent.futures
import os
import re
import subprocess
import sys

MAX_LINES = 600

# (start of the path, forbidden include, reason)
FORBIDDEN_INCLUDES = [
    ("runtime/", r"(mlir|llvm|nlohmann|compiler)/", "the runtime includes neither LLVM, JSON nor the compiler"),
    ("runtime/", r"ops/", "the contracts of the runtime with kernels are in runtime/abi"),
    ("runtime/abi/", r"runtime/(?!base/|abi/)", "the contracts with kernels are below all but base"),
    ("ops/(?!torch/)", r"(mlir|llvm|nlohmann|compiler|runtime/(program|exec|comm|cpu|api))/",
     "a kernel sees runtime/base, the kernel ABI and ops"),
    ("ops/torch/", r"(mlir|llvm|nlohmann|compiler|runtime/(exec|cpu))/", "the PyTorch op sees runtime/api and what is below"),
    ("runtime/base/", r"runtime/(program|exec|comm|cpu|api)/", "base is below everything"),
    ("runtime/program/", r"runtime/(exec|comm|cpu|api)/", "program is below exec, comm, devices and api"),
    ("runtime/cost/", r"runtime/(exec|comm|cpu|api)/", "cost is below exec, comm, devices and api"),
    ("runtime/comm/", r"runtime/(program|exec|cpu|api)/", "comm is below exec, devices and api"),
    ("runtime/exec/", r"runtime/(abi|cpu|workers|api)/", "exec is below devices and api, and sees no kernels"),
    ("runtime/cpu/", r"runtime/api/", "devices are below api"),
    ("runtime/sim/", r"runtime/(abi|cpu|workers|api)/", "the simulator is a device, which sees no kernels"),
    ("runtime/api/", r"runtime/abi/", "only devices see kernels"),
    ("compiler/", r"runtime/(exec|comm|cpu|api)/", "the compiler meets the runtime at program, routing, cost and sim"),
    ("compiler/(?!analysis/cost/)", r"runtime/sim/", "only the choice of sizes and order simulates"),
    ("compiler/analysis/", r"(mlir|llvm)/", "analyses are plain values in, plain values out"),
    ("compiler/dialect/", r"compiler/passes/", "dialects know no passes"),
]
# The one file that may write to memory of parameters, and what other files of the package may not do.
PACKAGE = "ops/torch/sluice_torch/"
WRITES = "ops/torch/sluice_torch/base/writes.py"
RAW_MEMORY = {"preadv", "readinto", "memmove", "memset"}
IN_PLACE = re.compile(r"[a-z]\w*_")  # methods of tensors that change them
NOT_WRITES = {"requires_grad_", "add_", "mul_", "zero_"}  # of gradients and counts: they raise the version themselves
VIEWS = {"detach", "view", "view_as", "reshape", "narrow", "split", "chunk", "flatten", "unflatten", "squeeze", "unsqueeze"}
TENSORS_OF_LAYERS = re.compile(r"target|parameter|param|weight|.*_(weight|bias|scales?|zeros?|lora_[ab])")
NO_SENTENCE = re.compile(r'(//|#|"""|/\*) ?Of\b')
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING, BOLD = re.compile(r"^#+ (.+)$", re.M), re.compile(r"\*\*(.+?)\*\*")
PAGE = re.compile(r"\b((?:docs|graphs)/\w+\.md)\b(?:`?, [*\"](?=[A-Z])([^*\"]+)[*\"])?")
LEFT_UNDONE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked(*patterns):
    output = subprocess.run(["git", "ls-files", "--", *patterns], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [path for path in output.split("\n") if path]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read().split("\n")


def too_long(sources):
    for path in sources:
        lines = len(read(path))
        if lines > MAX_LINES:
            yield f"{path}:{lines}: more than {MAX_LINES} lines"


def forbidden_includes(sources):
    for path in sources:
        for folder, pattern, why in FORBIDDEN_INCLUDES:
            if not re.match(folder, path):
                continue
            for number, line in enumerate(read(path), 1):
                if re.match(r'\s*#\s*include\s*[<"]' + pattern, line):
                    yield f"{path}:{number}: {why}"


def left_undone(sources):
    for path in sources:
        for number, line in enumerate(read(path), 1):
            if LEFT_UNDONE.search(line) and not path.endswith("check_style.py"):
                yield f"{path}:{number}: a word of unfinished work"


def no_sentences(sources):
    for path in sources:
        for number, line in enumerate(read(path), 1):
            if NO_SENTENCE.search(line):
                yield f"{path}:{number}: a comment begins with 'Of': write a sentence"


def stray_writes(sources):
    """Writes to tensors of layers outside WRITES: by .data, by in-place methods and by items of tensors that the function has
    not made itself, and to raw memory."""
    for path in sources:
        if not path.startswith(PACKAGE) or path == WRITES:
            continue
        tree = ast.parse("\n".join(read(path)))
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
        for function in functions:
            own = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and is_made(node.value)]
            made = {name.id for node in own for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            for node in ast.walk(function):
                if (what := stray_write(node, made)) is not None:
                    yield f"{path}:{node.lineno}: {what} may write to a parameter: call writes.write(), which raises its version"


def stray_write(node, made):
    """What of a node of the syntax tree writes to a tensor that is not among the names `made`, or None."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return ".data"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name, changed = node.func.attr, node.func.value
        if name in RAW_MEMORY:
            return f"{name}()"
        if ast.unparse(changed) == "torch.nn.init":
            changed = node.args[0]
        if IN_PLACE.fullmatch(name) and name not in NOT_WRITES and not is_fresh(changed, made):
            return f"{name}()"
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) and not is_fresh(target.value, made) and is_of_layer(target.value):
                return "an item"
    return None


def is_made(value):
    """Whether the value of an assignment is the result of a call, and no view of a tensor."""
    return isinstance(value, ast.Call) and not (isinstance(value.func, ast.Attribute) and value.func.attr in VIEWS)


def is_fresh(node, made):
    """Whether an expression is a tensor that the function has made: the result of a call, or a name that has one."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id == "getattr")
    return isinstance(node, ast.Name) and node.id in made


def is_of_layer(node):
    while isinstance(node, ast.Subscript):
        node = node.value
    name = getattr(node, "attr", getattr(node, "id", None))
    return isinstance(node, ast.Call) or bool(name and TENSORS_OF_LAYERS.fullmatch(name))


def without_target(tests):
    """Tests that no BUILD file names, which nobody runs."""
    for path in tests:
        folder, file = os.path.split(path)
        while not os.path.exists(f"{folder}/BUILD.bazel"):
            folder = os.path.dirname(folder)
        name = os.path.splitext(file)[0].removesuffix("_test")
        if not any(re.search(rf"\b{name}(_test)?\b", line) for line in read(f"{folder}/BUILD.bazel")):
            yield f"{path}: no target of {folder}/BUILD.bazel names it"


def misfit():
    """The change of a page that does not apply to the tree."""
    run = subprocess.run(["tools/ci/walkthrough", "--check"], stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        yield f"docs/ADDING_AN_OP.md: {run.stderr.strip()}"


def broken_links(pages, sources):
    """Relative links of pages to no file or heading, and sources that name a page, or a section of it in *...*, that is not there."""
    for path in pages:
        for link in LINK.findall(CODE.sub("", "\n".join(read(path)))):
            target, _, section = link.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if "://" not in link and not (os.path.exists(file) and (not section or section in sections(file, HEADING))):
                yield f"{path}: link to {link}, which is no file or heading"
    for path in sources:
        for file, section in PAGE.findall(re.sub(r"\n(//|#)? *", " ", "\n".join(read(path)))):
            if not os.path.exists(file) or section and anchor(section) not in sections(file, HEADING) + sections(file, BOLD):
                yield f"{path}: {file}{section and f', *{section}*,'} is no page or section"


def sections(page, pattern):
    return [anchor(title) for title in pattern.findall("\n".join(read(page)))]


def anchor(title):
    return re.sub(r"[^\w -]", "", title.lower().strip()).replace(" ", "-")


def unformatted(sources):
    def check(files):
        run = subprocess.run(["clang-format-19", "--dry-run", "--Werror", *files], stderr=subprocess.PIPE, text=True)
        return run.returncode, run.stderr

    count = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        done = list(pool.map(check, [sources[i::count] for i in range(count)]))
    found = sorted({line.split(":")[0] for _, text in done for line in text.splitlines() if ": error: " in line})
    if any(code for code, _ in done) and not found:
        yield "".join(text for _, text in done)
    for path in found:
        yield f"{path}: not formatted: run clang-format-19 -i"


def main():
    code = tracked("*.cc", "*.h")
    everything = code + tracked("*.td", "*.py", "*.sh", "*.bzl", "*.bazel", "*.fbs")
    rules = [
        too_long(everything),
        forbidden_includes(code),
        left_undone(everything),
        no_sentences(everything),
        stray_writes(tracked("ops/torch/*.py")),
        without_target(tracked("tests/*_test.cc", "tests/*_test.py")),
        misfit(),
        broken_links(tracked("*.md"), everything + tracked("*.md")),
        unformatted(code),
    ]
    passed = failed = 0
    for rule in rules:
        findings = list(rule)
        for finding in findings:
            print(finding)
        passed, failed = passed + (not findings), failed + bool(findings)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
