"""usage: sass_test.py CHAIN_KERNELS_O   facts of the machine code of the persistent kernel that cost its speed if they change

No model of the hardware shows them.
"""
import re
import sys
import unittest

import sass

KERNELS = []


def staging_parts(kernel):
    """(store, barrier) of each part of a result that a warpgroup stages: between them a proxy fence, and no branch."""
    for fence in kernel.places(sass.FENCE_PROXY):
        begin = end = fence
        while kernel.code[begin].code not in {*sass.STORES, *sass.BAR, sass.BRA}:
            begin -= 1
        while kernel.code[end].code not in {*sass.STORES, *sass.BAR, sass.BRA}:
            end += 1
        if kernel.code[begin].code in sass.STORES and kernel.code[end].code in sass.BAR:
            yield begin, end


def stage_loop(kernel, place):
    """The loop over stages that has an instruction: the innermost one that waits for a barrier and arrives."""
    return next(loop for loop in kernel.around(place) if all(kernel.has(loop, code) for code in sass.SYNCS))


class Sass(unittest.TestCase):
    def test_the_loops_that_multiply_are_short(self):
        for kernel in KERNELS:
            loops = {kernel.around(place)[0] for place in kernel.places(sass.HGMMA)}
            self.assertEqual(len(loops), 3, "layouts of operands")
            for loop in loops:
                with self.subTest(kernel=kernel.name, begin=loop.begin):
                    self.assertEqual(len(loop.body & set(kernel.places(sass.HGMMA))), 4)
                    self.assertLess(loop.size, 150)

    def test_the_code_of_a_kernel_is_small(self):
        # what a program with one activation launches; instruction caches hold 128 KB
        for kernel in KERNELS:
            with self.subTest(kernel=kernel.name):
                most = {"ELi0E": 260_000, "ELin1E": 600_000}.get(re.search(r"ELin?\dE(?=E*v)", kernel.name).group(), 280_000)
                self.assertLess(kernel.bytes, most)

    def test_what_is_staged_is_fenced_for_the_block_only(self):
        # a MEMBAR of the GPU waits for all stores of the thread, hundreds of cycles for each part of a result
        for kernel in KERNELS:
            with self.subTest(kernel=kernel.name):
                parts = list(staging_parts(kernel))
                self.assertTrue(parts, "no part is staged")
                scopes = [{kernel.code[at].scope for at in range(*part) if kernel.code[at].code == sass.MEMBAR} for part in parts]
                self.assertEqual(scopes, [{"CTA"}] * len(parts))

    def test_no_bulk_copy_is_in_a_loop_over_lanes(self):
        # nvcc has a short loop of its own around each, which ends at once where one lane copies; besides that one a stage may
        # have a loop over operands and one over their boxes, and none over rows
        for kernel in KERNELS:
            for place in kernel.places(sass.UTMALDG, sass.UBLKCP):
                stage = stage_loop(kernel, place)
                inner = [loop for loop in kernel.around(place) if loop.size < stage.size]
                if inner and kernel.has(inner[0], sass.ELECT):
                    del inner[0]
                with self.subTest(kernel=kernel.name, instruction=place):
                    self.assertLessEqual(len(inner), 2, f"loops of {[loop.size for loop in inner]} instructions")

    def test_gathered_rows_are_asked_for_in_few_instructions(self):
        # a stage multiplies in 1,024 cycles, and a warp issues an instruction in no less than one
        for kernel in KERNELS:
            with self.subTest(kernel=kernel.name):
                parts = kernel.places(sass.LDGSTS)
                self.assertTrue(parts, "no rows are gathered by cp.async")
                # by the shortest way past as many copies as a lane makes for 128 rows of 128 bytes
                steps = kernel.steps(stage_loop(kernel, parts[0]), sass.LDGSTS, 128 * 128 // 16 // 32)
                self.assertIsNotNone(steps)
                self.assertLess(steps, 600)


if __name__ == "__main__":
    KERNELS = sass.kernels(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
