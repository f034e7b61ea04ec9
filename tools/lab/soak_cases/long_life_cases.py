"""The long life of one process, as the last case of a soak."""
import json
import os
import random
import re
import sys

from soak_cases.jobs import Job
from soak_cases.layers import Layer, Refused, run_tool
from soak_cases.scene import new_folder

LAYERS = 4


def describe(tools, layer):
    """The fields that long_life.py needs of a layer."""
    text = run_tool([tools.sluice, "dump", layer.program, "--show", "header"])
    buffers = run_tool([tools.sluice, "dump", layer.program, "--show", "buffers"])
    outputs = re.findall(r"^buffer (\S+) : .* output(?: shard \w+)?( in)?", buffers, re.M)
    return {"owned": [name for name, inside in outputs if inside], "program": layer.program, "inputs": layer.inputs,
            "outputs": os.path.join(layer.folder, "reference-{rank}"), "ranks": layer.ranks,
            "rows_input": layer.rows_input, "entries": re.findall(r"^entry (\w+)", text, re.M)}


def run(soak, seconds):
    layers, number = [], 0
    while len(layers) < LAYERS:
        number += 1
        rng = random.Random(f"{soak.options.seed} life {number}")
        folder = new_folder(soak.folder, "life")
        try:
            layers.append(describe(soak.tools, Layer(soak.tools, soak.root, folder, rng, soak.options.ranks)))
        except Refused as error:
            soak.fail("layer", 0, "a layer of the long life", str(error))
            if number > 2 * LAYERS:
                return
    path = os.path.join(soak.folder, "life.json")
    with open(path, "w") as file:
        json.dump(layers, file)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "long_life.py")
    job = Job([sys.executable, script, soak.tools.library, path, f"{seconds:.0f}", str(soak.options.seed)], soak.folder,
              variables={"MALLOC_ARENA_MAX": "2"})
    job.wait(seconds + 120)
    text = job.text(0).strip()
    errors = job.text(1).strip()
    print(text, flush=True)
    left = job.left()
    if job.status == 0 and not errors and not left:
        soak.tally.add("long life", "right bits", True)
    else:
        soak.fail("long life", 0, f"{len(layers)} layers for {seconds:.0f} s",
                  f"status {job.status}, {len(left)} processes left: {errors[-2000:]}")
