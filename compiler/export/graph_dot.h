// A graph and the families it became, for Graphviz: `dot -Tsvg`. Free function.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "runtime/program/program.h"

namespace sluice {

// One cluster per entry. In it the nodes of the graph with their tensors on the edges, and the families with
// their space and tiles; events are edges from a family to those that wait, wide ones (not between the same
// slot of one space) dashed. What an entry saves leads into the later one. Colours go by op.
//
// `program` passed verify(). Nodes that `graph` lacks are left out.
std::string printDot(moe::GraphOp graph, const TaskProgram& program);

}  // namespace sluice
