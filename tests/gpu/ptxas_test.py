"""usage: ptxas_test.py FILE...   kernels keep their registers, and products do not wait for others

NAME.ptxas.txt is what `nvcc -Xptxas -v` wrote, NAME.o an object that programs are linked with. Prints the registers and the shared memory of each kernel.
"""
import os
import re
import subprocess
import sys
import unittest

# ptxas calls information what costs most: registers that setmaxnreg does not get (C7507), products that wait
# for each other (C7510, C7511, C7518).
SLOW = re.compile(r"C7507|C7510|C7511|C7518|Potential Performance Loss|serialized|\bwarning\b", re.I)
FUNCTION = re.compile(r"Function properties for (\S+)\n"
                      r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
KERNEL = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame"
                    r".*?(Used (\d+) registers[^\n]*)", re.DOTALL)
SHARED = re.compile(r"(\d+) bytes smem")

# What the host calls of an object.
FUNCTIONS = {"chain_kernels.o": ["sluice::gpu::launchChain"], "probe_kernels.o": ["sluice::gpu::launchProbe"]}


def readable(kernels):
    """The names of kernels as C++ writes them, without what all have in common."""
    names = "\n".join(name for name, *_ in kernels)
    plain = subprocess.run(["c++filt"], input=names, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [re.sub(r"sluice::gpu::|\(anonymous namespace\)::|^void |\([^()]*\)$", "", name)
            for name in plain.splitlines()]


class Ptxas(unittest.TestCase):
    objects = []
    paths = []

    def setUp(self):
        self.texts = {}
        for path in self.paths:
            with open(path, encoding="utf-8") as text:
                self.texts[path] = text.read()

    def test_every_file_is_about_kernels(self):
        for path, text in self.texts.items():
            kernels = KERNEL.findall(text)
            self.assertTrue(kernels, path)
            self.assertEqual(len(kernels), text.count("Compiling entry function"), path)
            print(path)
            for name, (_, stack, used, registers) in zip(readable(kernels), kernels):
                shared = SHARED.search(used)
                print(f"  {name}: {registers} registers, {stack} bytes of stack, "
                      f"{shared.group(1) if shared else 0} bytes of static shared memory")

    def test_no_register_is_spilled(self):
        for path, text in self.texts.items():
            for name, _, stores, loads in FUNCTION.findall(text):
                # kSwigluClamp and kSwigluOai: the cuts of a limit need a few registers more than a thread of math has; so does
                # the kernel of all activations (-1)
                most = 64 if re.search(r"chainKernel.*ELin1E", name) else 16 if re.search(r"chainKernel.*ELi[15]E", name) else 0
                with self.subTest(path=path, function=name):
                    self.assertLessEqual(max(int(stores), int(loads)), most, "bytes of spill stores and loads")

    def test_the_persistent_kernel_starts_with_the_registers_that_its_roles_share(self):
        for path, text in self.texts.items():
            if not os.path.basename(path).startswith("chain_kernels"):
                continue
            for name, _, _, registers in KERNEL.findall(text):
                with self.subTest(path=path, kernel=name):
                    self.assertEqual(int(registers) * 384, 88 * 128 + 208 * 256)

    def test_ptxas_reports_no_lost_performance(self):
        for path, text in self.texts.items():
            with self.subTest(path=path):
                self.assertEqual([line for line in text.splitlines() if SLOW.search(line)], [])

    def test_objects_have_no_function_of_a_kernel(self):
        # nvcc makes one of each device function that is not inlined; where the model is in the same program, it would
        # be called instead of the model's, and ends the process
        self.assertEqual({os.path.basename(path) for path in self.objects}, set(FUNCTIONS))
        for path in self.objects:
            lines = subprocess.run(["nm", "--extern-only", "--defined-only", "--demangle", path],
                                   stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            functions = [line.split(" ", 2)[2].split("(")[0] for line in lines if line.split(" ", 2)[1] in "TW"]
            with self.subTest(path=path):
                self.assertEqual(functions, FUNCTIONS[os.path.basename(path)])


if __name__ == "__main__":
    Ptxas.objects = [path for path in sys.argv[1:] if path.endswith(".o")]
    Ptxas.paths = [path for path in sys.argv[1:] if path.endswith(".ptxas.txt")]
    unittest.main(argv=sys.argv[:1])
