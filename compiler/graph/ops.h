// The ops of a graph file: their names, and the names of their inputs and outputs.
//
// Constant tables; what the ops mean stands in compiler/dialect/moe.td.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace sluice {

struct OpPort {
  std::string_view name;
  bool required = true;
  bool routing = false;  // takes or gives a routing, all others a tensor
};

// Whether an op has the factor "alpha".
enum class AlphaField : uint8_t { kNone, kOptional, kRequired };

struct OpSchema {
  GraphOp op;
  std::string_view name;
  std::span<const OpPort> inputs;
  std::span<const OpPort> outputs;
  bool hasTranspose = false;
  bool hasAccumulate = false;
  bool hasKind = false;
  AlphaField alpha = AlphaField::kNone;
};

const OpSchema& schemaOf(GraphOp op);

// Null where there is no such op.
const OpSchema* findOp(std::string_view name);

// "route, dispatch, ...", for messages.
std::string opNames();

}  // namespace sluice
