#!/usr/bin/python3
"""Measures the page of `sluice report` in a headless Chromium: its size, the time to load it and to draw a frame.

usage: measure_page.py PAGE_TEMPLATE.html [SPANS]      (1000000 where not given)

Frames are those of a zoom by 4096 into the middle of 32 workers and back. "drawing" is the time of the page's own script,
"interval" that between two frames as the browser shows them.
"""
import os
import sys
import tempfile
import time

import page_test
import sample_report

FRAMES = 240


def spread(values):
    values = sorted(values)
    return (f"mean {sum(values) / len(values):.1f} ms, 95% below {values[int(len(values) * 0.95)]:.1f} ms, "
            f"longest {values[-1]:.1f} ms")


def main():
    if page_test.missing():
        sys.exit(f"measure_page.py: error: {page_test.missing()} is not installed")
    with open(sys.argv[1], encoding="utf-8") as text:
        template = text.read()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, page_test.browser(folder) as driver:
        path = f"{folder}/report.html"
        with open(path, "w", encoding="utf-8") as out:
            out.write(sample_report.page_of(template, [sample_report.big_sample(count)]))
        begin = time.monotonic()
        driver.get(f"file://{path}")
        loaded = time.monotonic() - begin
        frames = driver.execute_async_script(f"sluiceReport.measureFrames({FRAMES}).then(arguments[0])")
        search = driver.execute_script("const begin = performance.now(); sluiceReport.search('up_proj slot 12'); "
                                       "return performance.now() - begin")
        print(f"spans: {driver.execute_script('return sluiceReport.spanCount')}")
        print(f"page: {os.path.getsize(path)} bytes, of which without data {len(template.encode())}")
        print(f"load: {loaded:.2f} s")
        print(f"drawing: {spread(frames['draws'])}")
        print(f"interval: {spread(frames['intervals'])}")
        print(f"search: {search:.1f} ms")


if __name__ == "__main__":
    main()
