// What each op makes of the shardings of what it reads, and which it refuses.
#include "runtime/program/sharding.h"

#include <catch2/catch.hpp>

#include "runtime/program/verify.h"
#include "runtime/program/words.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using S = Sharding;
using Catch::Matchers::Contains;

TaskProgram layer(bool fused = false, ActivationKind activation = ActivationKind::kSwiglu) {
  return buildMoeProgram({.ranks = 4, .experts = 4, .fused = fused, .tp = 2, .activation = activation});
}

BufferId named(const TaskProgram& program, const std::string& name) {
  for (uint32_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].name == name) return BufferId{b};
  FAIL("no buffer " << name);
  return {};
}

Buffer& bufferOf(TaskProgram& program, const std::string& name) {
  return program.buffers[named(program, name).value];
}

std::string refusal(const TaskProgram& program) {
  const auto verified = verify(program);
  return verified ? "" : verified.error().message;
}

// Expert ids, which no task reads, may have any.
void checkRefusesOthers(const TaskProgram& base) {
  for (size_t b = 0; b < base.buffers.size(); ++b) {
    if (base.buffers[b].name == "expert_ids") continue;
    for (const S other : {S::kWhole, S::kColumns, S::kGateUpColumns, S::kRows, S::kPartial, S::kGateUpRows}) {
      if (other == base.buffers[b].sharding) continue;
      TaskProgram program = base;
      program.buffers[b].sharding = other;
      INFO(base.buffers[b].name << " as " << text::word(other));
      CHECK(refusal(program) != "");
    }
  }
}

TEST_CASE("a layer whose experts are shared has columns, rows and parts, and whole tokens") {
  for (const bool fused : {false, true}) {
    TaskProgram program = layer(fused);
    REQUIRE(refusal(program) == "");
    const std::pair<const char*, S> expected[] = {{"rows_x", S::kWhole},
                                                  {"gate_up", S::kGateUpColumns},
                                                  {"act", S::kColumns},
                                                  {"down_out", S::kPartial},
                                                  {"combine.returned", S::kPartial},
                                                  {"y", S::kWhole},
                                                  {"gate_up_grad", S::kGateUpColumns},
                                                  {"rows_dx", S::kPartial},
                                                  {"gate_up_weight_grad", S::kGateUpColumns},
                                                  {"down_weight_grad", S::kRows},
                                                  {"row_weight_grad", S::kPartial},
                                                  {"d_expert_weights", S::kWhole},
                                                  {"dx", S::kWhole}};
    for (const auto& [name, sharding] : expected) {
      INFO(name);
      CHECK(text::word(bufferOf(program, name).sharding) == text::word(sharding));
    }
  }
}

TEST_CASE("what an activation without a gate reads is shared by its columns") {
  for (const bool fused : {false, true}) {
    TaskProgram program = layer(fused, ActivationKind::kRelu2);
    REQUIRE(refusal(program) == "");
    for (const char* name : {"gate_up_weight", "gate_up", "act", "gate_up_grad", "gate_up_weight_grad"}) {
      INFO(name);
      CHECK(text::word(bufferOf(program, name).sharding) == "columns");
    }
    bufferOf(program, "gate_up_weight").sharding = S::kGateUpColumns;
    bufferOf(program, "gate_up").sharding = S::kGateUpColumns;
    CHECK_THAT(refusal(program),
               Contains(fused ? "'up_proj' of entry 'forward': weight is 'gate_up_weight', "
                                "gate_up_columns at each of 2 ranks, expected columns or whole"
                              : "'swiglu' of entry 'forward': gate_up is 'gate_up', "
                                "gate_up_columns at each of 2 ranks as node 'up_proj' writes "
                                "it, expected columns or whole"));
  }
}

TEST_CASE("verify refuses every other sharding of every tensor") {
  for (const ActivationKind activation : {ActivationKind::kSwiglu, ActivationKind::kRelu2})
    for (const bool fused : {false, true}) checkRefusesOthers(layer(fused, activation));
}

TEST_CASE("operands that do not fit are refused with the node and the one that wrote them") {
  TaskProgram program = layer();
  bufferOf(program, "gate_up_weight").sharding = S::kColumns;
  bufferOf(program, "gate_up").sharding = S::kColumns;
  CHECK_THAT(
      refusal(program),
      Contains(
          "'swiglu' of entry 'forward': gate_up is 'gate_up', columns at each of 2 ranks as node 'up_proj' "
          "writes it, expected gate_up_columns or whole"));
  program = layer();
  for (const char* name : {"gate_up_weight", "down_weight", "gate_up", "act", "down_out"})
    bufferOf(program, name).sharding = S::kWhole;
  CHECK_THAT(refusal(program),
             Contains("'combine.return' of entry 'forward': rows is 'down_out', whole at each of 2 ranks "
                      "as node 'down_proj' writes it, expected partial"));
}

TEST_CASE("a linear layer has columns or terms, and a bias goes with what it is added to") {
  for (const bool column : {true, false}) {
    const TaskProgram base = buildLinearProgram({.column = column});
    REQUIRE(refusal(base) == "");
    const std::vector<std::pair<const char*, S>> expected =
        column
            ? std::vector<std::pair<const char*, S>>{{"rows_x", S::kWhole},        {"y", S::kColumns},
                                                     {"rows_dx", S::kPartial},     {"dx", S::kWhole},
                                                     {"weight_grad", S::kColumns}, {"bias_grad", S::kColumns},
                                                     {"dots", S::kPartial}}
            : std::vector<std::pair<const char*, S>>{{"terms", S::kPartial},    {"y", S::kWhole},
                                                     {"rows_dy", S::kWhole},    {"dx", S::kColumns},
                                                     {"weight_grad", S::kRows}, {"bias_grad", S::kWhole}};
    for (const auto& [name, sharding] : expected) {
      INFO(name);
      TaskProgram program = base;
      CHECK(text::word(bufferOf(program, name).sharding) == text::word(sharding));
    }
    checkRefusesOthers(base);
  }
  TaskProgram program = buildLinearProgram({});
  bufferOf(program, "bias").sharding = S::kWhole;
  CHECK_THAT(refusal(program),
             Contains("'product' of entry 'forward': bias is 'bias', whole at each of 2 ranks, "
                      "expected columns"));
}

TEST_CASE("without ranks that share experts everything is whole") {
  TaskProgram program = buildMoeProgram({.ranks = 2});
  bufferOf(program, "down_weight").sharding = S::kRows;
  CHECK(refusal(program) == "buffer 'down_weight' is rows, but tp is 1, expected whole");
}

TEST_CASE("a tensor of the caller cannot be a part that it has not") {
  Buffer buffer;
  buffer.name = "t";
  buffer.shape = {{Extent::kTokens, 0}, {Extent::kFixed, 3}};
  buffer.role = Role::kOutput;
  buffer.sharding = S::kPartial;
  CHECK(checkSharding(buffer).error().message == "buffer 't' of tokens is partial, expected whole");
  buffer.shape[0] = {Extent::kExperts, 0};
  CHECK(checkSharding(buffer).ok());
  buffer.role = Role::kInput;
  CHECK_FALSE(checkSharding(buffer).ok());
  buffer.sharding = S::kGateUpColumns;
  CHECK(checkSharding(buffer).error().message == "buffer 't' is gate_up_columns, but has no such dimension");
  for (const S rows : {S::kRows, S::kGateUpRows}) {
    buffer.sharding = rows;
    CHECK_FALSE(checkSharding(buffer).ok());
  }
  buffer.sharding = S::kColumns;
  CHECK(checkSharding(buffer).ok());
}

}  // namespace
}  // namespace sluice
