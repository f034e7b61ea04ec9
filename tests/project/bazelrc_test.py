"""usage: bazelrc_test.py BAZELRC   what a config compiles otherwise never lands in the folder of the fast build"""
import re
import sys
import unittest

# What changes the code that is compiled; a config without these may share a folder.
COMPILES_OTHERWISE = re.compile(r"--(copt|cxxopt|conlyopt|linkopt|per_file_copt|repo_env=CC)\b")


def read_configs(text):
    """The options of each config, by its name; those without a config have the name ''."""
    configs = {}
    for line in text.splitlines():
        match = re.match(r"(?:build|common)(?::(\w+))?\s+(.*)", line)
        if match:
            configs.setdefault(match.group(1) or "", []).extend(match.group(2).split())
    return configs


def expand(configs, name):
    """The options of a config with those of the configs that it names, in Bazel's order: the last one counts."""
    for option in configs[name]:
        if option.startswith("--config="):
            yield from expand(configs, option[len("--config="):])
        else:
            yield option


def last(options, name):
    values = [option.split("=", 1)[1] for option in options if option.startswith(f"--{name}=")]
    return values[-1] if values else None


class Bazelrc(unittest.TestCase):
    def setUp(self):
        with open(sys.argv[1], encoding="utf-8") as text:
            configs = read_configs(text.read())
        used = {option[len("--config="):] for options in configs.values() for option in options
                if option.startswith("--config=")}
        # what only others are made of is never built itself
        self.configs = {name: list(expand(configs, name)) for name in configs if name}
        self.parts = {name for name in used if last(self.configs[name], "platform_suffix") is None}

    def test_there_are_configs_of_sanitizers(self):
        sanitizers = [name for name, options in self.configs.items() if any("-fsanitize=" in each for each in options)]
        self.assertGreaterEqual(set(sanitizers), {"asan", "tsan", "fuzz"})

    def test_every_config_that_compiles_otherwise_has_an_output_folder_of_its_own(self):
        folders = {}
        for name, options in self.configs.items():
            if name in self.parts or not any(COMPILES_OTHERWISE.match(option) for option in options):
                continue
            folder = last(options, "platform_suffix")
            self.assertIsNotNone(folder, f"config {name} has no --platform_suffix")
            self.assertNotIn(folder, folders, f"config {name} shares its folder with {folders.get(folder)}")
            folders[folder] = name
            self.assertEqual(last(options, "experimental_convenience_symlinks"), "ignore",
                             f"config {name} turns bazel-bin to its folder")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
