"""usage: sass_test.py CHAIN_KERNELS_O   facts of the machine code of the persistent kernel that cost its speed if they change

No model of the hardware shows them.
"""
import sys
import unittest

import sass

KERNELS = []


class Sass(unittest.TestCase):
    def test_the_loops_that_multiply_are_short(self):
        for kernel in KERNELS:
            loops = {kernel.around(place)[0] for place in kernel.places(sass.HGMMA)}
            self.assertEqual(len(loops), 3, "layouts of operands")
            for loop in loops:
                with self.subTest(kernel=kernel.name, begin=loop.begin):
                    self.assertEqual(len(loop.body & set(kernel.places(sass.HGMMA))), 4)
                    self.assertLess(loop.size, 150)


if __name__ == "__main__":
    KERNELS = sass.kernels(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
