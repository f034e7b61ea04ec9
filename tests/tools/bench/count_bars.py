"""usage: count_bars.py FILE.svg   prints the bars of a picture, the names of its cases and the labels of their bars"""
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == SVG + "svg", root.tag
bars = [bar.get("class") for bar in root.iter(SVG + "rect") if bar.get("class")]
print(f"{bars.count('sluice')} bars of sluice, {bars.count('peer')} of peer")
texts = list(root.iter(SVG + "text"))
for text in texts:
    if text.get("font-weight") == "bold" and text.get("font-size") is None:
        print(text.text)
print(*(text.text for text in texts if text.get("text-anchor") == "end"))
