"""The tables of docs/MEGATRON.md: what a user is told of names and arguments."""

import re


def told(section):
    """{name: ([arguments], what has no effect and what is refused)} of the rows of a section that name something."""
    with open("docs/MEGATRON.md") as page:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page.read(), re.M | re.S)
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? *\|(.*)\|$", text, re.M)
    return {name: ([each for each in arguments.split(", ") if each], effects) for name, arguments, effects in rows}
