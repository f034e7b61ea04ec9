#include "compiler/graph/ops.h"

#include <span>

#include "compiler/dialect/moe.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice {

namespace {

constexpr OpPort kRouting = {.name = "routing", .routing = true};

std::vector<OpPort> makePorts(std::span<const OperandInfo> operands) {
  std::vector<OpPort> ports;
  for (const OperandInfo& operand : operands)
    ports.push_back(
        {.name = operand.name,
         .required = !operand.optional,
         .givenBy = operand.id == &Operands::weightedAct ? std::string_view(moe::kGivesAct) : ""});
  return ports;
}

// Ops that move rows differ from the ops of programs that move rows: they have a routing. Only programs have
// fused ops.
std::vector<OpSchema> makeSchemas() {
  std::vector<OpSchema> schemas = {
      {"route", {{"expert_ids", false}, {"placement", false}}, {kRouting}},
      {"dispatch", {{"tokens"}, kRouting, {"weights", false}}, {{"rows"}, {"row_weights", false}}},
      {"dispatch_codes", {{"codes"}, {"scales"}, kRouting}, {{"rows"}, {"row_scales"}}},
      {"combine",
       {{"rows"}, kRouting, {"weights", false}, {"scalars", false}, {"bias", false}},
       {{"tokens"}, {"token_scalars", false}}}};
  const text::Words& words = text::listWords(OpKind{});
  for (size_t i = 0; i < words.size(); ++i) {
    const OpInfo& op = findInfo(static_cast<OpKind>(i));
    const bool moves = op.domain != Domain::kRows && op.domain != Domain::kSums;
    if (moves || op.core == CoreKind::kUnified) continue;
    schemas.push_back({words[i], makePorts(op.reads), makePorts(op.writes)});
  }
  return schemas;
}

const std::vector<OpSchema>& schemas() {
  static const std::vector<OpSchema> all = makeSchemas();
  return all;
}

}  // namespace

const OpSchema* findOp(std::string_view name) {
  for (const OpSchema& schema : schemas())
    if (schema.name == name) return &schema;
  return nullptr;
}

std::string opNames() {
  std::string names;
  for (const OpSchema& schema : schemas()) {
    if (!names.empty()) names += ", ";
    names += schema.name;
  }
  return names;
}

}  // namespace sluice
