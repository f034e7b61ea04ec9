// The ops of a graph file: their names, and the names of their inputs and outputs, in the order of operands
// and results. Ops of the `moe` dialect of the same names; which attributes they have, the dialect knows.
//
// Constant tables; what the ops mean is written in compiler/dialect/moe.td.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice {

struct OpPort {
  std::string_view name;
  bool required = true;
  bool routing = false;  // takes or gives a routing, all others a tensor
};

struct OpSchema {
  std::string_view name;
  std::span<const OpPort> inputs;
  std::span<const OpPort> outputs;
};

// Null where there is no such op.
const OpSchema* findOp(std::string_view name);

// "route, dispatch, ...", for messages.
std::string opNames();

}  // namespace sluice
