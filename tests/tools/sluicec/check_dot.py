"""check_dot.py FILE: fails unless the file has the form that dot reads, and edges lead from node to node."""

import re
import sys

text = open(sys.argv[1]).read()
assert text.startswith("digraph ") and text.count("{") == text.count("}") and text.endswith("}\n")
nodes, edges = set(), []
string = r'"(?:[^"\\]|\\.)*"'
for line in text.splitlines():
    line = line.strip()
    attributes = rf" \[\w+=(?:{string}|\w+)(?:, \w+=(?:{string}|\w+))*\];"
    if match := re.fullmatch(rf"(\w+) -> (\w+){attributes}", line):
        edges.append(match.groups())
    elif match := re.fullmatch(rf"(\w+){attributes}", line):
        nodes.add(match.group(1))
    else:
        assert re.fullmatch(rf"(digraph {string} {{|subgraph \w+ {{|}}|(\w+=({string}|\w+); ?)+)", line), line
nodes -= {"node", "edge"}
assert edges and nodes
for start, end in edges:
    assert start in nodes and end in nodes, (start, end)
