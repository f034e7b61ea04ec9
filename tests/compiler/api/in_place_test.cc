// Which rows a rank that is alone still copies.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/program/op_table.h"
#include "tests/testing/small_target.h"

namespace sluice {
namespace {

const std::vector<std::pair<std::string, int64_t>> kLayer = {
    {"experts", 4}, {"top_k", 2}, {"hidden", 64}, {"intermediate", 64}, {"max_tokens", 48}};

TaskProgram compiled(const std::string& graph, const CompileOptions& options) {
  const Expected<TaskProgram> made = compile("graphs/" + graph, smallTarget(), options);
  if (!made) FAIL(made.error().message);
  return *made;
}

// The families that move rows, of the entry: "dispatch", "keep" and "return"; a dispatch of weights is none.
std::vector<std::string> movesOf(const TaskProgram& program, uint32_t entry) {
  std::vector<std::string> moves;
  for (const Family& family : program.families) {
    if (family.entry.value != entry) continue;
    if (family.op == OpKind::kDispatch && findBuffer(family, &Operands::rows)) moves.push_back("dispatch");
    if (family.name.ends_with(".keep")) moves.push_back("keep");
    if (family.op == OpKind::kCombineReturn) moves.push_back("return");
  }
  return moves;
}

using Moves = std::vector<std::string>;

TEST_CASE("a layer on one rank copies no rows, but keeps its tokens for the backward") {
  CompileOptions options{.sets = kLayer};
  options.trainable = {{"all"}};
  const TaskProgram both = compiled("moe_ffn/forward.json", options);
  CHECK(movesOf(both, 0) == Moves{"keep"});
  CHECK(movesOf(both, 1).empty());
  options.keep = "regather";  // the caller gives the tokens again
  const TaskProgram again = compiled("moe_ffn/forward.json", options);
  CHECK(movesOf(again, 0).empty());
  CHECK(movesOf(again, 1).empty());
}

TEST_CASE("tokens that the backward is given anyway are not kept") {
  CompileOptions options{.sets = kLayer};
  options.sets.emplace_back("shared_intermediate", 32);
  CHECK(movesOf(compiled("moe_ffn/shared_expert.json", options), 0).empty());
  options.trainable = {{"all"}};
  const TaskProgram shared = compiled("moe_ffn/shared_expert.json", options);
  CHECK(movesOf(shared, 0).empty());
  CHECK(movesOf(shared, 1).empty());
}

TEST_CASE("rows that the caller gets are dispatched") {
  CHECK(movesOf(compiled("moe_ffn/forward.json", {.sets = kLayer}), 0) == Moves{"dispatch"});
}

TEST_CASE("other ranks, or an option, have rows copied") {
  CompileOptions options{.sets = kLayer};
  const Moves all = {"dispatch", "return"};
  options.copyRows = true;
  CHECK(movesOf(compiled("moe_ffn/forward.json", options), 0) == all);
  options.copyRows = false;
  options.sets.emplace_back("ep", 2);
  CHECK(movesOf(compiled("moe_ffn/forward.json", options), 0) == all);
}

TEST_CASE("rows that are rounded or encoded are dispatched, and summed where they are") {
  for (const char* encode : {"mxfp8", "fp8e4m3", "int8,rows=int8"}) {
    INFO(encode);
    CompileOptions options{.sets = kLayer};
    options.encode = encode;
    options.trainable = {{"x"}};
    CHECK(movesOf(compiled("moe_ffn/forward.json", options), 0) == Moves{"dispatch"});
  }
  CompileOptions decoded{.sets = kLayer};
  decoded.encode = "int8";  // bf16 rows
  decoded.trainable = {{"x"}};
  CHECK(movesOf(compiled("moe_ffn/forward.json", decoded), 0).empty());
}

TEST_CASE("rows that something else than a product reads are dispatched") {
  CompileOptions options{.sets = kLayer};
  options.trainable = {{"all"}};
  const TaskProgram biased = compiled("moe_ffn/biased.json", options);
  CHECK(movesOf(biased, 0) == Moves{"keep"});
  CHECK(movesOf(biased, 1) == Moves{"dispatch"});  // the gradient of the bias is a column sum of them
}

TEST_CASE("adapters read rows in place, whatever is kept") {
  CompileOptions options{.sets = kLayer};
  options.sets.emplace_back("lora_rank", 4);
  options.trainable = {{"all"}};
  for (const char* keep : {"all", "minimal"}) {
    INFO(keep);
    options.keep = keep;
    CHECK(movesOf(compiled("moe_ffn/lora.json", options), 1).empty());
  }
}

}  // namespace
}  // namespace sluice
