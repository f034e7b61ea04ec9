#!/usr/bin/python3
"""Joins the page of a report: index.html with its styles and its script in place of the lines @STYLE@ and @SCRIPT@.

usage: embed_page.py index.html page.css page.js --notice COPYRIGHT --html OUT.html --cc OUT.cc

The line @DATA@ stays. The notice of the modules in the script replaces @NOTICE@; it may be absent, as where
Debian leaves out /usr/share/doc. OUT.cc defines sluice::tools::pageTemplate().
"""
import argparse
import os
import re

PIECE = 8000  # characters of a string literal; compilers need not take more than 65536


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read().strip()


def read_notice(path):
    """The text of a comment."""
    if not os.path.exists(path):
        return "Copyright Mike Bostock; BSD 3-clause licence"
    return re.sub("--+|@", "", read(path))


def join(html, css, script, notice):
    for name, text in (("page.css", css), ("page.js", script)):
        found = re.search(r"</(style|script)|<!--|@(DATA|STYLE|SCRIPT|NOTICE)@", text)
        if found:
            raise SystemExit(f"embed_page.py: error: {name} holds '{found[0]}', which would end it early")
    page = html.replace("@STYLE@", css, 1).replace("@SCRIPT@", script, 1).replace("@NOTICE@", notice, 1) + "\n"
    if page.count("\n@DATA@\n") != 1:
        raise SystemExit("embed_page.py: error: expected one line @DATA@ in index.html")
    return page


def literal(piece):
    """A C++ string literal of ASCII characters."""
    plain = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "?": "\\?"}
    octal = lambda c: "".join(f"\\{byte:03o}" for byte in c.encode())
    return '"' + "".join(plain.get(c) or (c if " " <= c <= "~" else octal(c)) for c in piece) + '"'


def source(page):
    pieces = [literal(page[at:at + PIECE]) for at in range(0, len(page), PIECE)]
    return "\n".join(['#include "tools/report/page/template.h"', "", "namespace sluice::tools {", "",
                      "std::string_view pageTemplate() {", "  static constexpr char kPage[] =",
                      *(f"      {piece}" for piece in pieces), "      ;",
                      "  return std::string_view(kPage, sizeof(kPage) - 1);", "}", "", "}  // namespace sluice::tools", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("index", "css", "script"):
        parser.add_argument(name)
    for name in ("--notice", "--html", "--cc"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    page = join(read(options.index), read(options.css), read(options.script), read_notice(options.notice))
    for path, text in ((options.html, page), (options.cc, source(page))):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    main()
