"""Data for the page of `sluice report`: two ranks with two workers each, with every section, and names that need care.

    page_of(template, [sample()])       the page as text
    big_sample(1000000)                 a report with so many spans
"""
import array
import base64
import json
import sys

NONE = 65535
TASK, ARRIVAL, PRODUCER, START, END, STEP, BIND, EXCHANGE, STUCK = range(9)
COLUMNS = {"begin": "d", "length": "d", "track": "H", "lane": "H", "kind": "B", "family": "H", "entry": "H", "slot": "I",
           "tile": "I", "rows": "I", "expert": "H", "event": "H", "index": "I", "cause": "i", "critical": "B",
           "flops": "f", "bytes": "f"}
FAMILIES = [("forward/dispatch", "put_rows", "#e8871e"), ("forward/up_proj_swiglu", "gmm_swiglu", "#2f6db5"),
            ("forward/down_proj", "gmm", "#7fb2e5"), ("forward/combine.return", "put_rows", "#f4bd7a"),
            ("forward/<script>alert(\"höher\")</script>", "sum", "#5a9e4b")]
EVENTS = ["forward/rows_in", "forward/hidden_<b>done</b>", "forward/returned"]


def span(**fields):
    """A span with every field that is not given at its usual value."""
    usual = {"lane": NONE, "kind": TASK, "family": NONE, "entry": 0, "slot": 0, "tile": 0, "rows": 0, "expert": NONE,
             "event": NONE, "index": 0, "cause": -1, "critical": 0, "flops": 0.0, "bytes": 0.0}
    return {**usual, **fields}


def pack(spans):
    """Columns of spans, sorted by track and begin; `cause` holds a span of the list, or -1."""
    order = sorted(range(len(spans)), key=lambda at: (spans[at]["track"], spans[at]["begin"], -spans[at]["length"]))
    place = {id(spans[at]): number for number, at in enumerate(order)}
    columns = {"count": len(spans)}
    for name, code in COLUMNS.items():
        values = array.array(code, [place.get(id(spans[at][name]), -1) if name == "cause" else spans[at][name]
                                    for at in order])
        columns[name] = encode(values)
    return columns


def encode(values):
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode()


def make_spans(slow):
    """Per rank: worker 0 sends, waits for the other rank's rows, multiplies and returns; worker 1 multiplies and sums."""
    spans, sends, ups = [], {}, {}
    for rank in range(2):
        tracks = 3 * rank
        spans.append(span(track=tracks + 2, begin=1000.0, length=9.9e6 * slow, kind=STEP))
        spans.append(span(track=tracks + 2, begin=1000.0, length=40000.0, kind=BIND))
        for slot in range(4):
            sends[rank, slot] = span(track=tracks, lane=2 * rank, begin=50000.0 + slot * 260000.0, length=240000.0 * slow / 1.4,
                                     family=0, slot=slot, rows=96, bytes=96 * 4096.0, critical=int(rank == 1 and slot < 2))
            spans.append(sends[rank, slot])
    for rank in range(2):
        tracks = 3 * rank
        for worker in range(2):
            lane, begin = 2 * rank + worker, 1.1e6 if worker == 0 else 60000.0
            for slot in range(worker, 8, 2):
                arrives = max(begin + 30000.0, 600000.0 + slot * 300000.0)
                spans.append(span(track=tracks + worker, lane=lane, begin=begin, length=arrives - begin, kind=ARRIVAL, family=1,
                                  slot=slot, event=0, index=slot, cause=sends[1 - rank, slot // 2]))
                begin = arrives
                for tile in range(3):
                    ups[rank, slot, tile] = span(
                        track=tracks + worker, lane=lane, begin=begin, length=210000.0 * slow + 900.0 * slot, family=1,
                        slot=slot, tile=tile, rows=96 - slot, expert=4 * rank + slot % 4, flops=1.6e8, bytes=4e6,
                        critical=int(rank == 0 and slot == 6))
                    spans.append(ups[rank, slot, tile])
                    begin += ups[rank, slot, tile]["length"] + 500.0
                spans.append(span(track=tracks + worker, lane=lane, begin=begin, length=60000.0, kind=PRODUCER, family=2,
                                  slot=slot, event=1, index=slot, cause=ups.get((rank, slot ^ 1, 2), -1)))
                begin += 60000.0
                spans.append(span(track=tracks + worker, lane=lane, begin=begin, length=330000.0 * slow, family=2, slot=slot,
                                  rows=96 - slot, expert=4 * rank + slot % 4, flops=2.1e8, bytes=3e6))
                begin += spans[-1]["length"]
                spans.append(span(track=tracks + worker, lane=lane, begin=begin, length=1200.0, family=3 + slot % 2, slot=slot,
                                  rows=96, bytes=96 * 4096.0))
                begin += 1300.0
            spans.append(span(track=tracks + worker, begin=begin, length=max(1.0, 9.9e6 * slow - begin), kind=END))
    return spans


def sample_tables():
    """Tables of several shapes: short, long, with words and with numbers."""
    families = [["forward/up_proj_swiglu", 48, 10.3125, 762.4], ["forward/down_proj", 16, 5.28, 636.36],
                ["forward/dispatch", 8, 1.37, 0.0], ["forward/<script>alert(\"höher\")</script>", 8, 0.0096, 0.0]]
    waits = [[f"forward/rows_in[{index}]", f"rank {index % 2}", 1234.5 / (index + 1), index] for index in range(150)]
    columns = [{"name": "family", "numeric": False}, {"name": "tasks", "numeric": True}, {"name": "ms", "numeric": True},
               {"name": "GFLOP/s", "numeric": True}]
    return [{"id": "families", "title": "Families", "note": "Time of all workers together.", "columns": columns,
             "rows": families},
            {"id": "waits", "title": "Longest waits", "note": "", "rows": waits,
             "columns": [{"name": "event", "numeric": False}, {"name": "from", "numeric": False},
                         {"name": "\u00b5s", "numeric": True}, {"name": "index", "numeric": True}]}]


def sample_memory():
    mib = 1 << 20
    regions = [{"name": "scratch", "bytes": 24 * mib, "kind": "scratch"},
               {"name": "saved <0>", "bytes": 12 * mib, "kind": "saved"},
               {"name": "heap", "bytes": 6 * mib, "kind": "symmetric"}]
    buffers = [{"name": name, "region": region, "offset": offset * mib, "bytes": size * mib, "begin": begin, "end": end,
                "type": "BF16", "shape": "R x 2048"}
               for name, region, offset, size, begin, end in (
                   ("hidden", 0, 0, 16, 0.6, 5.5), ("gate", 0, 16, 8, 0.6, 3.0), ("products", 0, 16, 8, 3.2, 9.0),
                   ("saved \"hidden\"", 1, 0, 12, 1.0, 9.9), ("rows", 2, 0, 4, 0.0, 4.0), ("results", 2, 4, 2, 4.0, 9.9))]
    by_family = [dict(buffer, begin=number, end=number + (3, 1, 2, 1, 1, 1)[number]) for number, buffer in enumerate(buffers)]
    return [{"entry": "forward", "axis": "ms", "names": [], "regions": regions, "buffers": buffers},
            {"entry": "backward", "axis": "family", "names": [name for name, _, _ in FAMILIES], "regions": regions[:1],
             "buffers": by_family[:3]}]


def sample_graph():
    nodes = [{"family": family, "lines": ["4 tiles", "space rows"]} for family in range(5)]
    edges = [{"from": first, "to": last, "event": event, "remote": remote} for first, last, event, remote in (
        (0, 1, "rows_in", True), (1, 2, "hidden_done", False), (2, 3, "products_done", False), (3, 4, "returned", True),
        (1, 4, "rows_counted", False))]
    return [{"entry": "forward", "nodes": nodes, "edges": edges}]


def sample(title="moe_layer", slow=1.0, has_run=True, hang=False):
    """One report; deterministic."""
    report = {"title": title, "file": f"{title}.json", "hasRun": has_run,
              "facts": [["target", "cpu"], ["ranks", "2"], ["workers", "2 per rank"],
                        ["note", "<img src=x onerror=alert(1)> & \u201cquoted\u201d"]],
              "families": [{"name": name, "op": op, "colour": colour} for name, op, colour in FAMILIES],
              "events": EVENTS, "entries": ["forward", "backward"], "memory": sample_memory(), "graphs": sample_graph(),
              "tables": sample_tables()[:1], "hang": None, "routing": []}
    if not has_run:
        return report
    report["processes"] = [{"name": "rank 0"}, {"name": "rank 1"}]
    report["tracks"] = [{"process": rank, "name": name} for rank in range(2) for name in ("worker 0", "worker 1", "steps")]
    report["lanes"] = [{"process": rank, "name": f"core {core} forward/main"} for rank in range(2) for core in range(2)]
    report["spans"] = pack(make_spans(slow))
    report["tables"] = sample_tables()
    report["use"] = [{"name": f"rank {rank}, worker {worker}", "busy": 7.1e6 - 4e5 * rank, "overhead": 1.1e5, "arrival": 1.3e6,
                      "producer": 2.4e5, "start": 6e4 * worker, "end": 1.1e6} for rank in range(2) for worker in range(2)]
    report["roofline"] = {"roofs": [{"name": "matrix rate", "gflops": 900}, {"name": "memory", "gbytes": 20}],
                          "points": [{"family": 1, "intensity": 64.0, "gflops": 700, "ms": 12.5},
                                     {"family": 2, "intensity": 21.0, "gflops": 320, "ms": 5.2},
                                     {"family": 4, "intensity": 0.25, "gflops": 3.5, "ms": 0.01}]}
    report["routing"] = [{"entry": "forward", "owner": [0, 0, 0, 0, 1, 1, 1, 1],
                          "counts": [[96, 12, 0, 55, 31, 77, 8, 105], [40, 41, 42, 43, 4, 90, 160, 22]]}]
    if hang:
        report["hang"] = {"text": "rank 1, worker 0: waited 30 s for event rows_in[3] (96 of 128 rows)\n"
                                  "missing: 32 rows from rank 0",
                          "edges": [{"from": "rank 1", "to": "rank 0", "label": "rows_in[3]: 96 of 128 rows", "missing": True},
                                    {"from": "rank 0", "to": "rank 1", "label": "returned[1]", "missing": False}]}
    return report


def big_sample(count, ranks=4, workers=8):
    """A report with `count` tasks and waits, spread over the workers; repeats one pattern per worker."""
    tracks = ranks * workers
    each, report = count // tracks, sample("big")
    columns = {name: array.array(code) for name, code in COLUMNS.items()}
    usual = span()
    state = 1
    for track in range(tracks):
        begin, begins, lengths = 0.0, [], []
        for _ in range(each):
            state = (state * 1103515245 + 12345) & 0x7fffffff
            begins.append(begin)
            lengths.append(500.0 + (state >> 8) % 9000)
            begin += lengths[-1] + 20.0
        values = {"begin": begins, "length": lengths, "track": [track] * each, "lane": [track] * each,
                  "kind": [ARRIVAL if at % 5 == 0 else TASK for at in range(each)],
                  "family": [(at * 7 // 3) % 5 for at in range(each)],
                  "slot": [at % 4096 for at in range(each)], "tile": [at % 7 for at in range(each)], "rows": [96] * each,
                  "cause": [(at * 131 + 1) % each if at % 5 == 0 else -1 for at in range(each)],
                  "critical": [int(at % 1000 == 1) for at in range(each)]}
        for name, column in columns.items():
            column.extend(values.get(name) or [usual[name]] * each)
    report["processes"] = [{"name": f"rank {rank}"} for rank in range(ranks)]
    report["tracks"] = [{"process": track // workers, "name": f"worker {track % workers}"} for track in range(tracks)]
    report["lanes"] = [{"process": track // workers, "name": f"core {track % workers} forward/main"} for track in range(tracks)]
    report["spans"] = {"count": each * tracks, **{name: encode(column) for name, column in columns.items()}}
    return report


def page_of(template, reports):
    """The page that `sluice report` would write."""
    data = json.dumps({"reports": reports}, ensure_ascii=False).replace("<", "\\u003c")
    element = f'<script type="application/json" id="report-data">{data}</script>'
    return template.replace("\n@DATA@\n", f"\n{element}\n", 1)
