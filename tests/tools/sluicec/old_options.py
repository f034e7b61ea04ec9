"""Checks that each option of the table in docs/PRECISION.md is refused by sluicec with the spelling that the table has.

usage: old_options.py SLUICEC GRAPH DOCUMENT
"""
import re
import subprocess
import sys


def main(sluicec, graph, document):
    with open(document) as text:
        rows = re.findall(r"^\| `--(\S+?)(?: (\S+?))?`.*? \| (.*) \|$", text.read(), re.M)
    rows = [(option, value, re.findall("`(.*?)`", now)) for option, value, now in rows]
    assert len({option for option, _, _ in rows}) == 10 and len(rows) > 14, rows
    for option, value, now in rows:
        command = [sluicec, graph, "--" + option, *([value] if value else []), "-o", "none.slp"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2, (command, done)
        for spelling in now:
            assert "this option is gone, expected --encode " in done.stderr and spelling in done.stderr, (command, done.stderr)
    print(f"{len(rows)} options")


if __name__ == "__main__":
    main(*sys.argv[1:])
