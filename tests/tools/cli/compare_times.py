"""Checks that every entry and family of the second simulation takes a given factor longer than in the first.

usage: compare_times.py TIMES TIMES FACTOR
"""
import json
import sys

times = []
for path in sys.argv[1:3]:
    with open(path, encoding="utf-8") as file:
        times.append(json.load(file))
factor = float(sys.argv[3])
checked = 0
for one, other in zip(times[0]["entries"], times[1]["entries"]):
    for first, second in [(one, other)] + list(zip(one["families"], other["families"])):
        assert abs(second["seconds"] - factor * first["seconds"]) < 1e-5 * second["seconds"], (first["name"], first, second)
        checked += 1
assert checked > 10, checked
