"""usage: hw_ptx_test.py HW_H HW_PTX_H WGMMA_PTX_H   the PTX of every primitive has the properties that hw.h promises

The assembler accepts a scope that is too small, a fence of the wrong state space or operands in the wrong order, and no
test without a GPU runs them. So this test reads the text of the headers: it needs no nvcc. What the assembler checks by
itself (types, shapes) is not repeated here.
"""
import re
import sys
import typing
import unittest


class Ptx(typing.NamedTuple):
    """An instruction, with the modifiers that decide what it means, and why they must be these."""
    name: str
    modifiers: str
    why: str
    touches_memory: bool = True  # so the compiler must keep its order with plain accesses
    is_pure: bool = False        # the result depends on the operands only, so the compiler may move it
    operands: str = ""           # a part of them that must be so


class Cpp(typing.NamedTuple):
    """A function without PTX: what its body must say, and why."""
    text: str
    why: str


COUNTER = "blocks of the whole GPU signal and read a counter"
LANES = "all 32 lanes take part"
GROUP = "the warpgroup calls it together"
LANDS = "the bytes that land are counted at the barrier that announced them"
TO_STAGE = "this block's shared memory is its own place in that of the cluster, the only destination that PTX ISA 8.0 has"
QUEUED = "a store of this thread belongs to a group that it can wait for"

PRIMITIVES = {
    "threadIndex": Cpp("threadIdx.x", "blocks have one dimension"),
    "blockIndex": Cpp("blockIdx.x", "grids have one dimension"),
    "blockCount": Cpp("gridDim.x", "grids have one dimension"),
    "sharedMemory": Cpp("__align__(1024)", "swizzles and descriptors count from multiples of 1024 bytes"),
    "load": Cpp("return *from;", "a plain access: a cache that stores do not change (ld.global.nc) would be wrong"),
    "store": Cpp("*to = value;", "a plain access"),

    "loadRelaxed": Ptx("ld", "relaxed gpu global", COUNTER + "; what the signal releases is for fenceAcquire()"),
    "loadRelaxedSystem": Ptx("ld", "relaxed sys global", "the host or another GPU writes it"),
    "fenceAcquire": Ptx("fence", "acq_rel gpu", COUNTER + "; all that they stored before must be visible"),
    "signal": Ptx("red", "release gpu global add", COUNTER + "; all that this thread knows comes before it"),
    "signalSystem": Ptx("red", "release sys global add", "other GPUs read it"),
    "addShared": Ptx("atom", "acq_rel cta shared::cta add", "orders what the threads of a block that add do before and after"),
    "fenceProxyAsync": Ptx("fence", "proxy async", "without a state space: copies read global and shared memory"),
    "fenceProxyAsyncShared": Ptx("fence", "proxy async shared::cta", "one without a state space waits for global memory, too"),
    "globalTimer": Ptx("mov", "", "a limit of a wait is in nanoseconds", touches_memory=False, operands="%globaltimer"),
    "sleepFor": Ptx("nanosleep", "", "the compiler must not drop it", touches_memory=False),

    "syncWarp": Cpp("__syncwarp()", LANES + ", and it orders memory between them"),
    "ballot": Cpp("__ballot_sync(~0U, value)", LANES),
    "shuffle": Cpp("__shfl_sync(~0U, value, lane)", LANES),
    "syncBlock": Cpp("__syncthreads()", "all threads of the block"),
    "syncNamed": Ptx("bar", "sync", "orders memory of those who meet", operands="barrier, threads"),
    "takeRegisters": Ptx("setmaxnreg", "inc sync aligned", GROUP, touches_memory=False),
    "releaseRegisters": Ptx("setmaxnreg", "dec sync aligned", GROUP, touches_memory=False),

    "initBarrier": Ptx("mbarrier", "init shared::cta", "a barrier is in this block's shared memory"),
    "fenceBarrierInit": [
        Ptx("fence", "mbarrier_init release cluster", "other threads use the barrier"),
        Ptx("fence", "proxy async shared::cta", "copies, which are of another proxy, use the barrier"),
    ],
    "arrive": Ptx("mbarrier", "arrive shared::cta", "release at the block's scope is the default", operands="_, "),
    "arriveExpecting": Ptx("mbarrier", "arrive expect_tx shared::cta", "announces bytes and arrives at once", operands="_, "),
    "hasEnded": [
        Ptx("mbarrier", "try_wait parity shared::cta", "acquire at the block's scope is the default"),
        Ptx("selp", "", "1 means that the phase has ended", operands="1, 0, ended"),
    ],

    "copyPart": Ptx("cp", "async cg shared::cta global L2::128B", "only .cg copies 16 bytes past the first cache, which has old rows",
                    operands="], 16, isThere ? 16 : 0"),
    "holdForParts": Ptx("cp", "async mbarrier arrive shared::cta", "without .noinc: it is no arrival of its own"),
    "copyBox": Ptx("cp", "async bulk tensor shared::cluster global mbarrier::complete_tx::bytes", LANDS + "; " + TO_STAGE),
    "storeBox": Ptx("cp", "async bulk tensor global shared::cta bulk_group", QUEUED),
    "addBox": Ptx("cp", "reduce async bulk tensor global shared::cta add bulk_group", QUEUED),
    "fenceMap": Ptx("fence", "proxy tensormap::generic acquire sys", "the host, or a copy engine, has written the map",
                    operands=", 128"),
    "copyBytes": Ptx("cp", "async bulk shared::cluster global mbarrier::complete_tx::bytes", LANDS + "; " + TO_STAGE),
    "storeBytes": Ptx("cp", "async bulk global shared::cta bulk_group", QUEUED),
    "groupStores": Ptx("cp", "async bulk commit_group", "ends the group of this thread's stores"),
    "waitStoresRead": Ptx("cp", "async bulk wait_group read", "only shared memory is to be free again"),
    "waitStores": Ptx("cp", "async bulk wait_group", "without .read: what was stored must be visible"),

    "describe": Cpp("ptx::shared(tile)", "describe_test compares the bits"),
    "fenceProducts": Ptx("wgmma", "fence sync aligned", GROUP),
    "multiply": Cpp("ptx::multiply<A == Major::kMn, B == Major::kMn>(sum, a, b, add)", "an operand that is not along k is transposed"),
    "groupProducts": Ptx("wgmma", "commit_group sync aligned", GROUP),
    "waitProducts": Ptx("wgmma", "wait_group sync aligned", GROUP),

    "packBf16": Ptx("cvt", "rn", "rounds to nearest even; the first operand goes to the upper half", touches_memory=False,
                    is_pure=True, operands="both, second, first"),
    "firstBf16": Cpp("pair << 16", "the first number is in the lower half"),
    "secondBf16": Cpp("pair & 0xffff0000", "the second number is in the upper half"),
    "exponential": Cpp("__expf(x)", "fast, and accurate enough for bf16 (a probe)"),
    "reciprocal": Ptx("rcp", "approx ftz", "fast, and accurate enough for bf16 (a probe)", touches_memory=False, is_pure=True),
    "trap": Cpp("__trap()", "ends the kernel"),

    # helpers of hw_ptx.h
    "shared": Cpp("__cvta_generic_to_shared(pointer)", "an instruction with a state space takes an address within it"),
    "global": Cpp("__cvta_generic_to_global(pointer)", "an instruction with a state space takes an address within it"),
}
HELPERS = {"shared", "global"}

# Types and shapes, which the assembler checks.
FORMS = re.compile(r"[su](16|32|64)|b(32|64)|f32|bf16|bf16x2|[1-5]d|tile")
SPACES = {"global": "ptx::global", "shared::cta": "ptx::shared", "shared::cluster": "ptx::shared"}


class Asm(typing.NamedTuple):
    text: str
    is_volatile: bool
    operands: list  # (constraint, expression)
    clobbers: str


class Instruction(typing.NamedTuple):
    name: str
    modifiers: list
    operands: str  # with the expressions of C++ in them


def closing(text, begin):
    """The place of the bracket that closes the one at `begin`; strings have none that count."""
    depth, at = 0, begin
    while True:
        if text[at] == '"':
            at = text.index('"', at + 1)
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if depth == 0:
            return at
        at += 1


def functions(text):
    """The body of each function by its name, of more than one with that name all of them."""
    text = re.sub(r"//[^\n]*", "", text)
    bodies = {}
    for match in re.finditer(r"SLUICE_DEVICE\b[^;{()]*?(\w+)\(", text):
        begin = closing(text, match.end() - 1) + 1
        if text[begin:].lstrip().startswith("{"):
            begin = text.index("{", begin)
            bodies.setdefault(match.group(1), []).append(text[begin:closing(text, begin) + 1])
    return bodies


def declarations(text):
    """The functions of a header that have no body there."""
    text = re.sub(r"//[^\n]*", "", text)
    return {match.group(1) for match in re.finditer(r"SLUICE_DEVICE\b[^;{()]*?(\w+)\(", text)
            if text[closing(text, match.end() - 1) + 1:].lstrip().startswith(";")}


def top_level(text, separator):
    """Splits at separators that are in no bracket and no string."""
    parts, last, at = [], 0, 0
    while at < len(text):
        if text[at] in '([{':
            at = closing(text, at)
        elif text[at] == '"':
            at = text.index('"', at + 1)
        elif text[at] == separator:
            parts.append(text[last:at])
            last = at + 1
        at += 1
    return [part.strip() for part in [*parts, text[last:]]]


def asms(body):
    for match in re.finditer(r"\basm\b(\s+volatile)?\s*\(", body):
        inner = body[match.end():closing(body, match.end() - 1)]
        text, *lists = top_level(inner, ":")
        operands = []
        for each in lists[:2]:
            operands += [re.fullmatch(r'"([^"]*)"\s*\((.*)\)', one, re.S).groups() for one in top_level(each, ",") if one]
        yield Asm("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace(r"\n", "\n"), match.group(1) is not None, operands,
                  lists[2] if len(lists) > 2 else "")


def instructions(asm):
    for line in re.split(r"[;\n]", asm.text):
        line = line.strip().strip("{}").strip() if line.strip() in "{}" else line.strip()
        if not line or line.startswith(".reg"):
            continue
        word, _, operands = line.partition(" ")
        name, *modifiers = word.split(".")
        named = re.sub(r"%(\d+)", lambda match: asm.operands[int(match.group(1))][1], operands).replace("%%", "%")
        yield Instruction(name, [each for each in modifiers if not FORMS.fullmatch(each)], named)


def addresses(instruction):
    """What stands in each pair of brackets, without the coordinates of a tensor."""
    return [re.sub(r",\s*\{.*", "", each).strip() for each in re.findall(r"\[(.*?)\](?=[,;]|$)", instruction.operands)]


def wrong_addresses(instruction):
    """Each address must be within the state space of its modifier; a map may also be among the kernel's parameters."""
    spaces = [SPACES[each] for each in instruction.modifiers if each in SPACES]
    if any(each.startswith("mbarrier::") for each in instruction.modifiers):
        spaces.append("ptx::shared")
    if instruction.name == "fence":
        spaces = ["ptx::global"] if "tensormap::generic" in instruction.modifiers else []
    if "tensor" in instruction.modifiers:
        spaces = ["" if each == "ptx::global" else each for each in spaces]
    found = [each.partition("(")[0] if "(" in each else "" for each in addresses(instruction)]
    if found != spaces:
        yield f"addresses {addresses(instruction)}, expected conversions {spaces}"
    if len(spaces) > 1:
        names = [re.sub(r".*\(|\)", "", each) for each in addresses(instruction)]
        if names != ["to", "from", "barrier"][:len(names)]:
            yield f"addresses of {names}, expected to, from, and the barrier"
    if "tensor" in instruction.modifiers and "{column, row, outer}" not in instruction.operands:
        yield "coordinates, expected {column, row, outer}: the innermost dimension comes first"


def wrong_instruction(asm, found, expected):
    if (found.name, found.modifiers) != (expected.name, expected.modifiers.split()):
        yield f"{found.name} {found.modifiers}, expected {expected.name} {expected.modifiers.split()}: {expected.why}"
    if asm.is_volatile == expected.is_pure:
        yield "volatile, though it is pure" if asm.is_volatile else "is not volatile: the compiler may drop or move it"
    if ('"memory"' in asm.clobbers) != expected.touches_memory:
        yield f'clobbers {asm.clobbers or "nothing"}, expected {"memory" if expected.touches_memory else "nothing"}'
    if expected.operands not in found.operands:
        yield f"operands {found.operands}, expected {expected.operands}: {expected.why}"
    yield from wrong_addresses(found)


def wrong_function(name, bodies, expected):
    if len(bodies) != 1:
        yield f"{len(bodies)} functions, expected one"
        return
    body = re.sub(r"\s+", " ", bodies[0])
    if isinstance(expected, Cpp):
        if expected.text not in body or "asm" in body:
            yield f"{body}, expected {expected.text}: {expected.why}"
        return
    found = [(asm, each) for asm in asms(bodies[0]) for each in instructions(asm)]
    wanted = expected if isinstance(expected, list) else [expected]
    if len(found) != len(wanted):
        yield f"{len(found)} instructions, expected {len(wanted)}"
    for (asm, instruction), each in zip(found, wanted):
        yield from wrong_instruction(asm, instruction, each)


def wrong(text):
    """What is wrong with hw_ptx.h."""
    found = functions(text)
    for name in sorted(set(found) ^ set(PRIMITIVES)):
        yield f"{name}: {'no row in PRIMITIVES' if name in found else 'not in hw_ptx.h'}"
    for name in set(found) & set(PRIMITIVES):
        for each in wrong_function(name, found[name], PRIMITIVES[name]):
            yield f"{name}: {each}"


def wrong_products(text):
    """What is wrong with wgmma_ptx.h."""
    bodies = functions(text).get("multiply", [])
    widths = []
    for body in bodies:
        (asm,) = asms(body)
        predicate, product = instructions(asm)
        width = int(re.search(r"\.m64n(\d+)k16\.f32\.bf16\.bf16", asm.text).group(1))
        widths.append(width)
        sums, rest = re.fullmatch(r"\{(.*)\}, (.*)", product.operands.replace("\n", "")).groups()
        if top_level(sums, ",") != [f"sum[{i}]" for i in range(width // 2)]:
            yield f"m64n{width}: the sums are not sum[0] to sum[{width // 2 - 1}]"
        if any(constraint != "+f" for constraint, name in asm.operands if name.startswith("sum")):
            yield f"m64n{width}: a sum is not read and written"
        if rest != "a, b, adds, 1, 1, kTransposeA, kTransposeB":
            yield f"m64n{width}: operands {rest}: expected descriptors, whether it adds, no negation, and transposes, a before b"
        if (predicate.name, predicate.modifiers, predicate.operands) != ("setp", ["ne"], "adds, add, 0"):
            yield f"m64n{width}: it must add exactly if `add` is not 0"
        if (product.name, product.modifiers[:3]) != ("wgmma", ["mma_async", "sync", "aligned"]) or not asm.is_volatile:
            yield f"m64n{width}: {product.name} {product.modifiers}, volatile {asm.is_volatile}"
    if sorted(widths) != [64, 128, 192, 256]:
        yield f"widths {widths}"


# What a slip of the hand does to an instruction that the assembler still accepts.
SWAPS = [(".gpu", ".cta"), (".gpu", ".sys"), (".sys", ".gpu"), (".cta.", ".gpu."), (".relaxed", ".volatile"), (".acq_rel", ".sc"),
         (".release", ".relaxed"), (".acq_rel.cta", ".relaxed.cta"), (".read", ""), ("fence.proxy.async;", "fence.proxy.async.shared::cta;"),
         ("fence.proxy.async.shared::cta;", "fence.proxy.async;"), (".cg", ".ca"), ("arrive.shared", "arrive.noinc.shared"), ("isThere ? 16 : 0", "16"),
         ("fence.proxy.async;", "fence.proxy.async.global;"), (".expect_tx", ""), (".parity", ""), (".inc", ".dec"), (".dec", ".inc"),
         ("1, 0, ended", "0, 1, ended"), (".reduce", ""), (".acquire.sys", ".acquire.gpu"), (".cluster;", ".gpu;"),
         ('"f"(second), "f"(first)', '"f"(first), "f"(second)'), (".rn", ".rz"), ("{%3, %4, %5}", "{%4, %3, %5}"),
         ("{%2, %3, %4}", "{%3, %2, %4}"), ("ptx::shared(barrier)", "barrier"), ("ptx::global(counter)", "counter"),
         ('"l"(ptx::global(from)', '"l"(ptx::global(to)'), ('"r"(barrier), "r"(threads)', '"r"(threads), "r"(barrier)'), ("~0U", "1U"),
         ("__align__(1024)", "__align__(128)"), ("[%0, {%2, %3, %4}], [%1]", "[%0, {%2, %3, %4}], [%2]"), ("return *from", "return __ldg(from)")]
PRODUCT_SWAPS = [("adds, 1, 1,", "adds, -1, 1,"), ('"n"(kTransposeA), "n"(kTransposeB)', '"n"(kTransposeB), "n"(kTransposeA)'),
                 ('"l"(a), "l"(b)', '"l"(b), "l"(a)'), ("setp.ne", "setp.eq"), ('"+f"(sum[7])', '"=f"(sum[7])'),
                 ("asm volatile", "asm"), ('"%0, %1,', '"%1, %0,'), (".aligned", "")]


def replaced(text, old, new):
    """The text with each occurrence of `old` replaced, one at a time."""
    for match in re.finditer(re.escape(old), text):
        yield text[:match.start()] + new + text[match.end():]


class HwPtx(unittest.TestCase):
    hw = ptx = wgmma = ""

    def test_every_primitive_of_hw_h_has_its_properties(self):
        self.assertEqual(list(wrong(self.ptx)), [])

    def test_every_primitive_of_hw_h_is_there(self):
        self.assertEqual(declarations(self.hw), set(PRIMITIVES) - HELPERS)

    def test_every_product_has_its_properties(self):
        self.assertEqual(list(wrong_products(self.wgmma)), [])

    def expect_found(self, text, find, swaps):
        for old, new in swaps:
            changed = list(replaced(text, old, new))
            self.assertTrue(changed, f"{old!r} is not in the header any more")
            for each in changed:
                with self.subTest(old=old, new=new):
                    self.assertNotEqual(list(find(each)), [])

    def test_slips_are_found(self):
        code = re.sub(r"//[^\n]*", "", self.ptx)
        self.expect_found(code, wrong, [*SWAPS, ("asm volatile", "asm"), (': "memory"', "")])
        self.expect_found(self.wgmma, wrong_products, PRODUCT_SWAPS)

    def test_every_modifier_that_is_left_out_is_found(self):
        code = re.sub(r"(//|#)[^\n]*", "", self.ptx)
        for match in re.finditer(r'"[^"]*"', code):
            for modifier in re.finditer(r"(?<=\w)\.([a-z_:]+\w*)", match.group()):
                if FORMS.fullmatch(modifier.group(1)):
                    continue
                begin = match.start() + modifier.start()
                with self.subTest(instruction=match.group(), modifier=modifier.group()):
                    self.assertNotEqual(list(wrong(code[:begin] + code[begin + len(modifier.group()):])), [])


if __name__ == "__main__":
    HwPtx.hw, HwPtx.ptx, HwPtx.wgmma = (open(path, encoding="utf-8").read() for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
