// A graph and the families made from it, for Graphviz: `dot -Tsvg`. Free function.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "runtime/program/program.h"

namespace sluice {

// One cluster per entry, with the nodes of the graph with their tensors on the edges, and the families with
// their space and tiles. Events are edges from a family to those that wait; wide events (not between the same
// slot of one space) are dashed. What an entry saves leads into the later one. Colours depend on the op.
//
// `program` passed verify(). Nodes that `graph` does not have are omitted.
std::string printDot(moe::GraphOp graph, const TaskProgram& program);

}  // namespace sluice
