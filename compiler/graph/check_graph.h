// What a graph must keep that no single field shows: every tensor has one definition and a use, entries hand
// over what they say, nodes form no cycle.
//
// Reports the first error to `errors`; sorts the nodes of every entry, producers first, else in file order.
#pragma once

#include "compiler/graph/fields.h"
#include "compiler/graph/graph.h"

namespace sluice {

void checkGraph(Graph& graph, ErrorSink& errors);

}  // namespace sluice
