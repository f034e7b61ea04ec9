"""The machine code of sm_90 kernels: as much of it as tests need.

NVIDIA documents neither the encoding nor the object's container. What is here was found by comparing what nvcc 13.0 makes of kernels
that differ in one instruction of PTX. An instruction has 16 bytes; its lowest 12 bits say which one it is.
"""
import heapq
import struct
import typing

BAR = {0xb1d, 0x51d}  # the barrier's number is a constant, or in a register
BRA = 0x947
EXIT = 0x94d
ELECT = 0x82f         # one of the lanes that are left: nvcc loops over lanes where an instruction takes one address a warp
FENCE_PROXY = 0x3c6   # FENCE.VIEW.ASYNC; the MEMBAR before it has the scope of a fence.proxy.async
HGMMA = 0x9f0
LDGSTS = 0xfae        # cp.async
MEMBAR = 0x992
STORES = {0x385, 0x388, 0x985, 0x988}  # ST and STS: of shared memory, or where nvcc does not know of which
SYNCS = {0x5a7, 0x9a7}                 # of an mbarrier: looks at it, arrives there
UBLKCP = 0x3ba        # a bulk copy of bytes
UTMALDG = 0x5b4       # a bulk copy of a box to shared memory

LONGEST_LOOP = 4000  # instructions; longer ones are not looked for

SCOPES = {0x8: "CTA", 0xa: "GPU", 0xb: "SYS"}


class Instruction(typing.NamedTuple):
    low: int
    high: int

    @property
    def code(self):
        return self.low & 0xfff

    @property
    def is_conditional(self):
        """Whether the next instruction may follow a BRA or an EXIT (it has a predicate, or asks whether the warp is apart)."""
        return self.low >> 12 & 0xf != 7 or self.high >> 23 & 0x1f != 7

    @property
    def scope(self):
        """The scope of a MEMBAR."""
        return SCOPES.get(self.high >> 12 & 0xf, "unknown")

    @property
    def jump(self):
        """How many instructions after the next one the target of a BRA is."""
        parts = (self.low >> 34 | (self.high & 0x3ffff) << 30) << 8 | self.low >> 16 & 0xff  # in units of 4 bytes
        return (parts - (1 << 56) if parts >> 55 else parts) // 4


class Loop(typing.NamedTuple):
    """The instructions that may come between one arrival at `begin` and the next, by way of a jump at `end`."""
    begin: int
    end: int
    body: frozenset

    @property
    def size(self):
        return len(self.body)


class Kernel:
    def __init__(self, name, code):
        self.name = name
        self.code = [Instruction(*struct.unpack_from("<QQ", code, at)) for at in range(0, len(code), 16)]
        self.before = [[] for _ in self.code]
        for at in range(len(self.code)):
            for after in self.after(at):
                self.before[after].append(at)
        bodies = [(self.target(at), at) for at in self.places(BRA) if self.target(at) < at]
        self.loops = sorted((Loop(begin, end, body) for begin, end in bodies if (body := self.body(begin, end))),
                            key=lambda loop: loop.size)

    @property
    def bytes(self):
        return 16 * len(self.code)

    def places(self, *codes):
        return [at for at, each in enumerate(self.code) if each.code in codes]

    def target(self, at):
        return at + 1 + self.code[at].jump

    def after(self, at):
        """The instructions that may follow one."""
        each = self.code[at]
        following = [self.target(at)] if each.code == BRA else []
        if each.code not in (BRA, EXIT) or each.is_conditional:
            following.append(at + 1)
        return [after for after in following if after < len(self.code)]

    def body(self, begin, end):
        """What comes before `end` and not before `begin`; None: that is more than a loop, which one enters at its beginning."""
        found, left = {begin, end}, [end]
        while left:
            for at in self.before[left.pop()]:
                if at not in found:
                    found.add(at)
                    left.append(at)
            if 0 in found or len(found) > LONGEST_LOOP:
                return None
        return frozenset(found)

    def around(self, place):
        """The loops around an instruction, the innermost first."""
        return [loop for loop in self.loops if place in loop.body]

    def has(self, loop, *codes):
        return any(self.code[at].code in codes for at in loop.body)

    def steps(self, loop, code, times):
        """The least number of instructions of one round of a loop in which one of them comes so often; None: there is no such way."""
        best, queue = {}, [(1, loop.begin, 0)]
        while queue:
            steps, at, done = heapq.heappop(queue)
            done = min(times, done + (self.code[at].code == code))
            if (at, done) == (loop.end, times):
                return steps
            for after in self.after(at):
                if after in loop.body and steps + 1 < best.get((after, done), 1 << 30):
                    best[after, done] = steps + 1
                    heapq.heappush(queue, (steps + 1, after, done))
        return None


def sections(elf):
    """The sections of a 64-bit ELF file by name."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3a)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    begin = headers[names][4]
    return {elf[begin + name:elf.index(b"\0", begin + name)].decode(): elf[at:at + length]
            for name, kind, _, _, at, length in headers if kind != 8}


def kernels(path):
    """The kernels of an object that nvcc made for one architecture."""
    with open(path, "rb") as file:
        container = sections(file.read()).get(".nv_fatbin", b"")
    at = container.find(b"\x7fELF")
    if at < 0:
        raise ValueError(f"{path}: found no machine code, expected some that is not compressed")
    return [Kernel(name.removeprefix(".text."), code) for name, code in sections(container[at:]).items()
            if name.startswith(".text.")]
