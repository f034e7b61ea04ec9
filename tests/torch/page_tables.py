"""The tables of docs/MEGATRON.md, docs/KT.md and docs/HYPER_PARALLEL.md: what a user is told of names and arguments."""

import re


def told(section=None, page="docs/MEGATRON.md"):
    """{name: ([arguments], what has no effect and what is refused)} of the rows of a section, or a page, that name something."""
    with open(page) as file:
        text = file.read()
    if section is not None:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? *\|(.*)\|$", text, re.M)
    return {name: ([each for each in arguments.split(", ") if each], effects) for name, arguments, effects in rows}
