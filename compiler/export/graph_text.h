// A graph as text: as a graph file (graphs/FORMAT.md), and for Graphviz. Free functions.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// A moe.graph as the text of a graph file.
//
// readGraphText() turns it into the same graph, except for locations. Sizes are numbers, and a symbol keeps
// only its value, which cannot be changed. Tensors without a name get one; one that leaves its entry has the
// name under which it leaves. `file` is named if an op has no location. Errors (whole reports): things that
// graph files do not have, such as an op that fuse makes, or a tensor that no node reads.
Expected<std::string> printGraphJson(moe::GraphOp graph, const std::string& file);

// A graph and the families made from it, for Graphviz: `dot -Tsvg`.
//
// One cluster per entry, with the nodes of the graph with their tensors on the edges, and the families with
// their space and tiles. Events are edges from a family to those that wait; wide events (not between the same
// slot of one space) are dashed. What an entry saves leads into the later one. Colours depend on the op.
//
// `program` passed verify(). Nodes that `graph` does not have are omitted.
std::string printDot(moe::GraphOp graph, const TaskProgram& program);

}  // namespace sluice
