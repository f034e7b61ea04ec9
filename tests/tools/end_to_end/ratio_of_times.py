"""Checks that all entries of the second simulation together take LEAST to MOST times as long as those of the first.

usage: ratio_of_times.py TIMES TIMES LEAST MOST
"""
import json
import sys


def seconds(path):
    with open(path, encoding="utf-8") as file:
        return sum(entry["seconds"] for entry in json.load(file)["entries"])


ratio = seconds(sys.argv[2]) / seconds(sys.argv[1])
assert float(sys.argv[3]) <= ratio <= float(sys.argv[4]), ratio
