"""Changes a device model: drop its rates, or halve every speed and double every time of it.

usage: edit_target.py IN OUT drop|halve
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    target = json.load(file)
if sys.argv[3] == "drop":
    for group in ("matrix", "vector", "memory", "caches", "link", "task"):
        del target[group]
else:
    for product in ("gmm", "gmm_transposed", "weight_grad"):
        target["matrix"]["value"][product]["flops"] /= 2
    for group, keys in (("vector", ("activation", "activation_grad", "sum", "copy")),
                        ("memory", ("core_read", "core_write", "shared_read", "shared_write")),
                        ("caches", ("core_spill",)), ("link", ("bandwidth",))):
        for key in keys:
            target[group]["value"][key] /= 2
    target["link"]["value"]["latency"] *= 2
    target["task"]["value"] *= 2
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(target, file)
