#!/usr/bin/python3
"""Draws a trace of `sluice run --trace` as an SVG: for each rank and worker what it ran, and what arrived meanwhile.

usage: draw_timeline.py TRACE.json -o TIMELINE.svg

The row "arriving" of a rank begins with the first row that another rank sends to it, and ends with the last one that it
waited for. A tick marks the arrival of one slot, which is known only if a worker was waiting for it. Sends and returns
are recognised by the names of families of `dispatch` and `combine` nodes.
"""
import argparse
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, ROW, GAP = 1000, 118, 22, 4
SEND, RETURN, SUM = "#e8871e", "#f4bd7a", "#5a9e4b"
PRODUCTS = ("#2f6db5", "#7fb2e5", "#1c4a80", "#a9c9e8")
WEIGHT_GRADIENTS = ("#7a5195", "#b794c9")
WAIT, ARRIVING, RETURNING = "#eeeeee", "#fbdcb4", "#cfe6c8"


def is_send(name):
    return name == "dispatch"


def is_return(name):
    return name.endswith(".return")


def choose_colours(tasks):
    """Colour by family, in the order in which families first run."""
    products, gradients, colours = list(PRODUCTS), list(WEIGHT_GRADIENTS), {}
    for task in sorted(tasks, key=lambda each: each["ts"]):
        name = task["name"]
        if name in colours:
            continue
        if is_send(name) or is_return(name) or name.endswith(".sum"):
            colours[name] = SEND if is_send(name) else RETURN if is_return(name) else SUM
        else:
            palette = gradients if name.endswith("weight_grad") else products
            colours[name] = palette[0]
            palette.append(palette.pop(0))
    return colours


def read_spans(path):
    """The title of a trace, and its spans by kind."""
    with open(path, encoding="utf-8") as text:
        trace = json.load(text)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["cat"] == "step" and event["name"] not in ("bind", "exchange")]
    if not steps:
        sys.exit(f"draw_timeline: error: {path}: found no step, expected a trace of sluice run")
    title = f"{trace['otherData']['program']}: {', then '.join(dict.fromkeys(step['name'] for step in steps))}"
    return title, {"step": steps, "task": [event for event in events if event["cat"] == "task"],
                   "wait": [event for event in events if event["cat"] == "wait"]}


def find_arrivals(spans, rank, entry):
    """(returned, begin, arrivals) of what is being sent to a rank in an entry: rows, then returned results."""
    inside = [event for event in spans["task"] if entry["ts"] <= event["ts"] < entry["ts"] + entry["dur"]]
    waits = [event for event in spans["wait"] if event["pid"] == rank and event["args"]["cause"] == "arrival"
             and entry["ts"] <= event["ts"] < entry["ts"] + entry["dur"]]
    for sends, returned in ((is_send, False), (is_return, True)):
        begins = [event["ts"] for event in inside if event["pid"] != rank and sends(event["name"])]
        ends = sorted(event["ts"] + event["dur"] for event in waits if (event["args"]["event"] == "returned") == returned)
        if begins and ends and ends[-1] > min(begins):
            yield returned, min(begins), ends


class Drawing:
    def __init__(self, spans, title):
        self.begin = min(step["ts"] for step in spans["step"])
        self.length = max(step["ts"] + step["dur"] for step in spans["step"]) - self.begin
        self.lines, self.title, self.y = [], title, 30

    def x(self, time):
        return LEFT + (time - self.begin) / self.length * (WIDTH - LEFT - 8)

    def bar(self, begin, end, colour, hint, top=0, height=ROW):
        x, width = self.x(begin), max(self.x(end) - self.x(begin), 0.3)
        self.lines.append(f'<rect x="{x:.1f}" y="{self.y + top}" width="{width:.1f}" height="{height}" '
                          f'fill="{colour}"><title>{escape(hint)}</title></rect>')

    def arriving(self, returned, begin, arrivals):
        """Rows in the upper half of the row, results in the lower one."""
        top, height = (ROW // 2 + 1 if returned else 1), ROW // 2 - 2
        self.bar(begin, arrivals[-1], RETURNING if returned else ARRIVING, "results" if returned else "rows", top, height)
        for time in arrivals:
            self.lines.append(f'<path d="M{self.x(time):.1f} {self.y + top}v{height}" stroke="{SUM if returned else SEND}"/>')

    def text(self, x, y, words, anchor="start", weight="normal"):
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
                          f"{escape(words)}</text>")

    def label(self, words, weight="normal"):
        self.text(LEFT - 8, self.y + ROW - 7, words, "end", weight)

    def next_row(self):
        self.y += ROW + GAP

    def axis(self):
        step = next(size * 10 ** power for power in range(-2, 7) for size in (1, 2, 5)
                    if self.length / 1000 / (size * 10 ** power) <= 10)
        for number in range(int(self.length / 1000 / step) + 1):
            x = self.x(self.begin + number * step * 1000)
            if x > WIDTH - 25:  # its label would be cut off
                break
            self.lines.append(f'<path d="M{x:.1f} {self.y}v5" stroke="#888"/>')
            self.text(x, self.y + 18, f"{number * step:g} ms", "middle")
        self.y += 30

    def legend(self, entries):
        x = LEFT
        for words, colour in entries:
            width = 28 + 6.6 * len(words)
            if x + width > WIDTH:
                x, self.y = LEFT, self.y + 20
            self.lines.append(f'<rect x="{x}" y="{self.y}" width="12" height="12" fill="{colour}"/>')
            self.text(x + 16, self.y + 10.5, words)
            x += width
        self.y += 22

    def svg(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y}" font-family="sans-serif" '
                f'font-size="11.5" fill="#222">\n<rect width="{WIDTH}" height="{self.y}" fill="#fff"/>\n'
                f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{escape(self.title)}</text>')
        return "\n".join([head, *self.lines, "</svg>"]) + "\n"


def draw(spans, title):
    drawing, colours = Drawing(spans, title), choose_colours(spans["task"])
    for rank in sorted({step["pid"] for step in spans["step"]}):
        drawing.label(f"rank {rank}: arriving", "bold")
        for entry in (step for step in spans["step"] if step["pid"] == rank):
            for returned, begin, arrivals in find_arrivals(spans, rank, entry):
                drawing.arriving(returned, begin, arrivals)
        drawing.next_row()
        workers = sorted({task["args"]["worker"] for task in spans["task"] if task["pid"] == rank})
        for worker in workers:
            drawing.label(f"worker {worker}")
            for kind in ("wait", "task"):
                for event in spans[kind]:
                    if event["pid"] != rank or event["args"]["worker"] != worker:
                        continue
                    name = f"wait for {event['args']['event']}" if kind == "wait" else event["name"]
                    drawing.bar(event["ts"], event["ts"] + event["dur"], WAIT if kind == "wait" else colours[name],
                                f"{name}, slot {event['args']['slot']}: {event['dur'] / 1000:.2f} ms")
            drawing.next_row()
        drawing.y += GAP
    drawing.axis()
    drawing.legend([*colours.items(), ("wait", WAIT), ("rows on their way", ARRIVING),
                    ("results on their way back", RETURNING)])
    return drawing.svg()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("-o", "--out", required=True)
    options = parser.parse_args()
    title, spans = read_spans(options.trace)
    svg = draw(spans, title)
    with open(options.out, "w", encoding="utf-8") as out:
        out.write(svg)


if __name__ == "__main__":
    main()
