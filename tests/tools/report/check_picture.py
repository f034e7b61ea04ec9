"""Prints what the picture of a run has.   usage: check_picture.py TIMELINE.svg"""
import re
import sys
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
root = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
width, height = (float(number) for number in root.get("viewBox").split()[2:])
words = [text.text for text in root.iter(SVG + "text")]
print(words[0])
print("rows:", ", ".join(word for word in words if re.fullmatch(r"(rank|worker) \d+", word)))
bars = [bar for bar in root.iter(SVG + "rect") if bar.find(SVG + "title") is not None]
for bar in bars:
    left, top, length, tall = (float(bar.get(name)) for name in ("x", "y", "width", "height"))
    assert 0 <= left <= left + length <= width and 0 <= top <= top + tall <= height, bar.attrib
print("bars:", " ".join(sorted({re.match(r"[\w.]+", bar.find(SVG + "title").text)[0] for bar in bars})))
