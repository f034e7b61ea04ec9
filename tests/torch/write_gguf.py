"""Writes GGUF files from bytes, without tensors: what tests compare reading with."""

import struct

ALIGNMENT = 64
# Types of metadata, by their names in the specification, and what struct.pack() calls their numbers.
KINDS = ("U8", "I8", "U16", "I16", "U32", "I32", "F32", "BOOL", "TEXT", "LIST", "U64", "I64", "F64")
CODES = dict(zip(KINDS, "BbHhIif?__Qqd"))


def text(words):
    made = words if isinstance(words, bytes) else words.encode()
    return struct.pack("<Q", len(made)) + made


def value(kind, content):
    """A value of metadata without its type; that of a list is (type, values)."""
    if kind == "TEXT":
        return text(content)
    if kind == "LIST":
        of, values = content
        return struct.pack("<IQ", KINDS.index(of), len(values)) + b"".join(value(of, each) for each in values)
    return struct.pack(f"<{CODES[kind]}", content)


def entry(name, kind, content):
    """A piece of metadata."""
    return text(name) + struct.pack("<I", KINDS.index(kind)) + value(kind, content)


def write(path, tensors, metadata=(), version=3, alignment=ALIGNMENT, cut=0):
    """tensors: (name, sizes, the first of which is that along a row, type, bytes); metadata: (name, type, value). The last `cut`
    bytes are left out. Returns the length of the header."""
    infos, data = [], b""
    for name, sizes, kind, content in tensors:
        infos.append(text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, len(data)))
        data += content + bytes(-len(content) % alignment)
    entries = [entry("general.alignment", "U32", alignment), *(entry(*each) for each in metadata)]
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(entries)) + b"".join(entries) + b"".join(infos)
    head += bytes(-len(head) % alignment)
    path.write_bytes((head + data)[: len(head) + len(data) - cut])
    return len(head)
