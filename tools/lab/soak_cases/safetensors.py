"""Files of tensors, as far as the soak reads and damages them."""
import json
import struct


def read(path):
    """{name: [type, shape, bytes]}"""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    return {name: [about["dtype"], about["shape"], body[slice(*about["data_offsets"])]] for name, about in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def drop_row(path, name):
    """Removes the last row of a tensor; returns False if the file has no such row."""
    tensors = read(path)
    if name not in tensors or tensors[name][1][0] == 0:
        return False
    _, shape, content = tensors[name]
    tensors[name][2] = content[:len(content) - len(content) // shape[0]]
    shape[0] -= 1
    write(path, tensors)
    return True


def overwrite_int32(path, name, index, value):
    """Changes one element of a tensor; returns False if the file or the tensor has none."""
    tensors = read(path)
    if name not in tensors or not tensors[name][2]:
        return False
    content = bytearray(tensors[name][2])
    struct.pack_into("<i", content, index * 4 % len(content), value)
    tensors[name][2] = bytes(content)
    write(path, tensors)
    return True
