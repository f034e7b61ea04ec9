// Reads one node of an entry. Part of read_graph.
#pragma once

#include <functional>
#include <span>

#include "compiler/graph/fields.h"
#include "compiler/graph/graph.h"

namespace sluice {

// Value of a size given as number or expression, from min to max; `what` names it.
int64_t readSize(ErrorSink& errors, const Graph& graph, const JsonValue& value, std::string_view what,
                 int64_t min, int64_t max);

// The tensor a string names; none (after an error) where there is none.
TensorUse readTensorUse(ErrorSink& errors, const Graph& graph, const JsonValue& value, std::string_view what);

// Tensors and symbols of `graph` are read already.
GraphNode readNode(ErrorSink& errors, const Graph& graph, const JsonValue& value);

}  // namespace sluice
