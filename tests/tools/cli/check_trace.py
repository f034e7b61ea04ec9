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
arrows = {"s": {}, "f": {}}
counters = {}
for event in trace["traceEvents"]:
    if event["ph"] == "C":
        counters.setdefault((event["pid"], event["name"]), []).append((event["ts"], event["args"]["rows"]))
        continue
    where = (event["pid"], event["tid"])
    assert all(isinstance(part, int) for part in where), event
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index"), event
        if event["name"] == "thread_name":
            assert where not in names, f"two names for {where}"
            names[where] = event["args"]["name"]
        continue
    if event["ph"] in "sf":
        assert event["id"] not in arrows[event["ph"]] and event["name"] and event["cat"], event
        assert event["ph"] == "s" or event["bp"] == "e", event
        arrows[event["ph"]][event["id"]] = (where, event["ts"])
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

# an arrow begins and ends inside of a span, and not before it begins
assert arrows["s"].keys() == arrows["f"].keys()
for number, (where, time) in arrows["s"].items():
    target, end = arrows["f"][number]
    assert time <= end, f"arrow {number} ends before it begins"
    for track, at in ((where, time), (target, end)):
        assert any(begin - 1e-6 <= at <= begin - negative + 1e-6 for begin, negative, _ in tracks[track]), f"arrow {number}"

# a counter goes forwards and is 0 when all is done
for (pid, name), values in counters.items():
    assert all(before[0] < after[0] for before, after in zip(values, values[1:])), f"{name} of {pid} goes back"
    assert all(value >= 0 for _, value in values) and values[-1][1] == 0, f"{name} of {pid}: {values[-1]}"

for (pid, tid), name in sorted(names.items()):
    print(f"rank {pid} track {tid}: {name}")
print(f"tasks: {tasks}")
print(f"arrows: {len(arrows['s'])}")
print(f"counters: {', '.join(sorted(f'{name} of rank {pid}' for pid, name in counters))}")
print(f"dropped: {trace['otherData']['dropped_spans']}")
