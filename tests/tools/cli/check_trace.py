"""Reads a trace as Perfetto would, knowing only the trace event format, and prints what it contains.

usage: check_trace.py TRACE
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    trace = json.load(file)

names = {}
tracks = {}
tasks = 0
for event in trace["traceEvents"]:
    where = (event["pid"], event["tid"])
    assert all(isinstance(part, int) for part in where), event
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index"), event
        if event["name"] == "thread_name":
            assert where not in names, f"two names for {where}"
            names[where] = event["args"]["name"]
        continue
    assert event["ph"] == "X", event
    assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"], event
    tracks.setdefault(where, []).append((event["ts"], -event["dur"], event["name"]))
    if event["cat"] == "task":
        tasks += 1
        for field in ("slot", "tile", "rows", "bytes", "flops", "worker"):
            assert isinstance(event["args"][field], int) and event["args"][field] >= 0, event
    if event["cat"] == "wait":
        assert event["args"]["cause"] in ("arrival", "producer") and event["args"]["event"], event

# complete events of one track lie side by side or inside each other
for where, spans in tracks.items():
    assert where in names, f"track {where} has no name"
    open_ends = []
    for begin, negative, name in sorted(spans):
        end = begin - negative
        while open_ends and open_ends[-1] <= begin + 1e-6:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 1e-6, f"{name} of {names[where]} begins inside another"
        open_ends.append(end)

for (pid, tid), name in sorted(names.items()):
    print(f"rank {pid} track {tid}: {name}")
print(f"tasks: {tasks}")
print(f"dropped: {trace['otherData']['dropped_spans']}")
