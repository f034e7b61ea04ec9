// The ops of a graph file: their names, and the names of their inputs and outputs, in the order of operands
// and results. The ops of the `moe` dialect have the same names; the dialect defines their attributes.
//
// Constant tables, made from the op table; compiler/dialect/moe.td specifies what the ops mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct OpPort {
  std::string_view name;
  bool required = true;
  bool routing = false;  // takes or gives a routing; all other ports a tensor
  // The attribute, without a value, of an op that gives this result; only a result after another optional one
  // has it.
  std::string_view givenBy = {};
};

struct OpSchema {
  std::string_view name;
  std::vector<OpPort> inputs;
  std::vector<OpPort> outputs;
};

// The attributes, and fields of nodes, that say how a product and its derivative round their factors.
inline constexpr const char* kRoundingFields[] = {"round_a", "round_b", "round_grads"};
// Likewise those that are there or not.
inline constexpr const char* kFlagFields[] = {"transpose", "accumulate", "scale_a"};

// Null if there is no such op.
const OpSchema* findOp(std::string_view name);

// "route, dispatch, ...", for messages.
std::string opNames();

}  // namespace sluice
