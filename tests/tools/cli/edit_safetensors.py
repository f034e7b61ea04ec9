"""Changes one tensor of a safetensors file; knows the format only from its description.

usage: edit_safetensors.py IN OUT drop NAME | add NAME | type NAME DTYPE | shape NAME A,B | set NAME INDEX VALUE
                          | take NAME FILE
"""
import json
import struct
import sys

FORMATS = {"F32": "f", "I32": "i", "I64": "q", "BF16": "H", "F16": "e"}


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    assert size % 8 == 0, "the header is padded to 8"
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = [entry["dtype"], entry["shape"], bytearray(body[begin:end])]
    assert sum(len(t[2]) for t in tensors.values()) == len(body), "the tensors cover the data"
    return tensors


def save(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += bytes(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def main():
    source, target, what, name, *rest = sys.argv[1:]
    tensors = load(source)
    if what == "drop":
        del tensors[name]
    elif what == "add":
        tensors[name] = ["F32", [2], bytearray(8)]
    elif what == "type":
        tensors[name][0] = rest[0]
    elif what == "take":
        tensors[name] = load(rest[0])[name]
    elif what == "shape":
        shape = [int(n) for n in rest[0].split(",")]
        size = struct.calcsize(FORMATS[tensors[name][0]])
        for n in shape:
            size *= n
        tensors[name][1] = shape
        tensors[name][2] = (tensors[name][2] + bytearray(size))[:size]
    elif what == "set":
        code = FORMATS[tensors[name][0]]
        value = float(rest[1]) if code in "fe" else int(rest[1], 0)
        struct.pack_into("<" + code, tensors[name][2], int(rest[0]) * struct.calcsize(code), value)
    save(target, tensors)


main()
