"""usage: c_integers_test.py LIBSLUICE SLUICEC   numbers at the limits of integers for each argument of the C interface that is one: a call
gives its own error, reads and takes no memory that is not there, and ends"""
import ctypes as c
import itertools
import os
import subprocess
import sys
import tempfile
import unittest

LIBRARY, SLUICEC = (os.path.abspath(path) for path in sys.argv[1:3])
GRAPH = os.path.abspath("graphs/moe_ffn/forward.json")
SIZES = [f"--set={name}" for name in ("experts=4", "top_k=2", "hidden=64", "intermediate=64", "max_tokens=16")]
API = c.CDLL(LIBRARY)
INT32 = [2**31 - 1, -(2**31), -1, 0, 241, 4097]
INT64 = [2**31 - 1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, -(2**63), -1]
SECONDS = [0.1, 1e300, -1.0, float("nan"), float("inf")]


class Job(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("rank", c.c_int32), ("ranks", c.c_int32), ("seconds", c.c_double)]


class Workers(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int32), ("pinning", c.c_int32), ("device", c.c_char_p)]


class Options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("workspace", c.c_void_p), ("threads", c.c_int32), ("pinning", c.c_int32), ("executor", c.c_int32),
        ("pack", c.c_int32), ("seconds", c.c_double), ("packed_bytes", c.c_int64), ("device", c.c_char_p),
    ]  # fmt: skip


class Tensor(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("type", c.c_int32), ("dim_count", c.c_int32), ("dims", c.POINTER(c.c_int64)), ("data", c.c_void_p),
        ("flags", c.c_uint32), ("reserved", c.c_uint32),
    ]  # fmt: skip


def made(call, *arguments):
    """What a call makes, or None."""
    handle = c.c_void_p()
    return handle if call(*arguments, c.byref(handle)) == 0 else None


def options_of(kind, *values):
    return c.byref(kind(c.sizeof(kind), *values))


class Integers(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "one.slp")
            subprocess.run([SLUICEC, GRAPH, *SIZES, "-o", path], check=True, stdout=subprocess.DEVNULL)
            self.program = made(API.sluice_program_load, path.encode())
        self.alone = made(API.sluice_transport_alone)
        self.assertTrue(self.program and self.alone)

    def tearDown(self):
        API.sluice_transport_free(self.alone)
        API.sluice_program_free(self.program)

    def test_ranks_of_transports(self):
        for size in INT32:
            handles = (c.c_void_p * 4097)()
            self.assertEqual(API.sluice_transport_threads(c.c_int32(size), handles) == 0, size == 241)
            for handle in filter(None, handles):
                API.sluice_transport_free(c.c_void_p(handle))
        for rank, ranks, seconds in itertools.product([2**31 - 1, -(2**31), 0], [2**31 - 1, -1, 1, 241], SECONDS):
            job = made(API.sluice_transport_join, options_of(Job, b"integers", rank, ranks, seconds))
            self.assertEqual(job is not None, rank == 0 and ranks == 1 and seconds >= 0, (rank, ranks, seconds))
            if job:
                API.sluice_transport_free(job)

    def test_threads_and_limits(self):
        for threads in INT32:
            workspace = made(API.sluice_workspace_create, self.alone, options_of(Workers, threads, 0, None))
            if workspace:
                API.sluice_workspace_free(workspace)
            self.assertEqual(workspace is not None, 0 <= threads <= 241, threads)
        some = [1, 2**31 - 1, -1], [0, 1, 7, -(2**31)], SECONDS, [0, -1, -(2**63), 2**63 - 1]
        for threads, executor, seconds, packed in itertools.product(*some):
            chosen = options_of(Options, None, threads, 0, executor, 0, seconds, packed, None)
            if context := made(API.sluice_context_create, self.program, self.alone, chosen):
                API.sluice_context_free(context)

    def test_sizes_of_tensors(self):
        dims = (c.c_int64 * 8)()
        for index, rank, count, capacity in itertools.product([*range(6), 2**32 - 1], INT32, INT64, [8, 0, -1, 2**31 - 1]):
            API.sluice_program_tensor_dims(
                self.program, c.c_uint32(index), c.c_int32(rank), c.c_int64(count), c.c_int64(count), dims, c.c_int32(capacity)
            )
        context = made(API.sluice_context_create, self.program, self.alone, None)
        memory = c.create_string_buffer(1 << 20)
        data = (c.addressof(memory) + 63) // 64 * 64
        for name in (b"x", b"expert_ids", b"expert_weights", b"gate_up_weight", b"y"):
            for kind, rank, size in itertools.product([*range(-1, 9), *INT32], [0, 1, 2, 3, -1], [*INT64, 0, 4, 16, 64]):
                tensor = options_of(Tensor, kind, rank, (c.c_int64 * 8)(*[size] * 8), data, 0, 0)
                API.sluice_context_bind(context, name, tensor)
        rows, count = (c.c_int32 * 8)(), c.c_int32()
        for number in INT32:
            API.sluice_context_expert_rows(context, rows, c.c_int32(number), c.byref(count))
        for spans in (2**31, 2**32, 2**60, 2**63, 2**64 - 1):
            self.assertNotEqual(API.sluice_context_trace_start(context, c.c_uint64(spans)), 0)
        for saved in (1024, 2**31, 2**32 - 1):
            self.assertNotEqual(API.sluice_context_run(context, b"forward", c.c_uint32(saved)), 0)
        API.sluice_context_free(context)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
