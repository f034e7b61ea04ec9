#!/usr/bin/env python3
"""Writes the kernel of chained products with every mistake of mutants.py, of which one can be chosen when it runs.

usage: make_mutants.py CHOICE KERNEL HEADER...     HEADER: those of the kernel, each after those that it includes

CHOICE is a header with the names of mistakes and the one that is chosen, KERNEL one with the kernel. The kernel's own files
have no switches: each edit becomes `if (isPlanted(n)) { new } else { old }`, or `(isPlanted(n) ? (new) : (old))`.
"""
import os
import re
import sys
import typing

from mutants import MUTANTS

CHOICE = """\
// Made by tests/gpu/make_mutants.py: the mistakes that the kernel of chained products can have.
#pragma once

#include <string_view>

namespace sluice::gpu {{

inline constexpr std::string_view kMistakes[] = {{{names}}};
inline int plantedMistake = -1;  // index; -1: none
inline bool isPlanted(int mistake) {{ return plantedMistake == mistake; }}

}}  // namespace sluice::gpu
"""


class Change(typing.NamedTuple):
    """An edit of a mutant, by its number, at a place of the text."""
    begin: int
    end: int
    new: str
    mutant: int


def place(name, text, edit):
    """Where an edit's old text begins."""
    context = edit.before + edit.old + edit.after
    count = text.count(context)
    if count != 1:
        sys.exit(f"mutant '{name}': found {count} times, expected once: {context!r}")
    return text.index(context) + len(edit.before)


def changes(text):
    found = []
    for number, (name, edits) in enumerate(MUTANTS.items()):
        for edit in edits:
            begin = place(name, text, edit)
            found.append(Change(begin, begin + len(edit.old), edit.new, number))
    return sorted(found, key=lambda change: (change.begin, -change.end))


def groups(found):
    """Changes of the same text, each list with the widest first."""
    together = []
    for change in found:
        widest = together[-1][0] if together else None
        if widest and (change.begin < widest.end or change[:2] == widest[:2]):
            if change.end > widest.end:
                names = list(MUTANTS)
                sys.exit(f"mutants '{names[widest.mutant]}' and '{names[change.mutant]}' overlap: expected the text of one "
                         "within that of the other")
            together[-1].append(change)
        else:
            together.append([change])
    return together


def variants(text, group):
    """What becomes of the widest text of a group: by new text, the mutants that have it."""
    begin, end = group[0][:2]
    by_text = {}
    for mutant in sorted({change.mutant for change in group}):
        new, at = "", begin
        for change in group:
            if change.mutant == mutant:
                new += text[at:change.begin] + change.new
                at = change.end
        by_text.setdefault(new + text[at:end], []).append(mutant)
    return by_text


def choice(old, by_text):
    """Code that does what one of the texts says."""
    is_statement = not old or old[-1] in ";}"
    code = f"{{ {old} }}" if is_statement else f"({old})"
    for new, mutants in by_text.items():
        condition = " || ".join(f"isPlanted({mutant})" for mutant in mutants)
        code = (f"if ({condition}) {{ {new} }} else {code}" if is_statement
                else f"({condition} ? ({new}) : {code})")
    return f"{{ {code} }}" if is_statement else code


def kernel(headers):
    text = '#include "tests/gpu/planted.h"\n'
    parts = "|".join(os.path.basename(header).removesuffix(".h") for header in headers)
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text += re.sub(rf'#include "ops/gpu/(?:{parts})\.h"\n', "", file.read())
    for group in reversed(groups(changes(text))):
        begin, end = group[0][:2]
        text = text[:begin] + choice(text[begin:end], variants(text, group)) + text[end:]
    return text


def main():
    choice_path, kernel_path, headers = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(choice_path, "w", encoding="utf-8") as file:
        file.write(CHOICE.format(names=", ".join(f'"{name}"' for name in MUTANTS)))
    with open(kernel_path, "w", encoding="utf-8") as file:
        file.write(kernel(headers))


if __name__ == "__main__":
    main()
