"""Writes safetensors files from lists of numbers, without tensors: what tests compare reading with."""

import json
import struct

# Types whose numbers are more than a byte.
_CODES = {"F32": "f", "F16": "e", "I32": "i", "I64": "q"}


def packed(kind, values):
    """The bytes of numbers. Those of BF16 are cut to what it holds."""
    if kind == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{_CODES.get(kind, 'B')}", *values)


def write(path, tensors, align=1):
    """tensors: name -> (kind, shape, flat values). The first begins at a multiple of `align`."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, values) in tensors.items():
        made = packed(kind, values)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(made)]}
        data += made
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % align)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
