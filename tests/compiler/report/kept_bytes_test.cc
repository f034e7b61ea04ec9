#include "compiler/report/kept_bytes.h"

#include <catch2/catch.hpp>

#include "compiler/api/compile.h"
#include "compiler/api/pipeline.h"

namespace sluice {
namespace {

IrPointer derived(const std::string& file, const CompileOptions& options = {}) {
  const Expected<IrPointer> ir = deriveGraph("graphs/moe_ffn/" + file, Target{}, options);
  if (!ir) FAIL(ir.error().message);
  return *ir;
}

moe::GraphOp graphOf(const IrPointer& ir) { return *ir->module.get().getOps<moe::GraphOp>().begin(); }

// The gradient of the activation computes that again, weighted.
TEST_CASE("the training graph keeps its rows and the product, in bytes per row") {
  CHECK(keptBytes(graphOf(derived("train.json"))) == KeptBytes{.row = 2 * (2048 + 2 * 768), .token = 0});
}

TEST_CASE("a graph that saves nothing keeps nothing") {
  CHECK(keptBytes(graphOf(derived("forward.json"))) == KeptBytes{});
}

TEST_CASE("what the other choice would keep is what it keeps") {
  for (const char* file : {"forward.json", "shared_expert.json", "lora.json", "two_gmms.json"})
    for (const char* trainable : {"all", "down_weight", "x"}) {
      INFO(file << " " << trainable);
      if (std::string(file) == "lora.json" && std::string(trainable) == "down_weight") continue;
      CompileOptions options;
      options.trainable = {trainable};
      const IrPointer all = derived(file, options);
      options.keep = "minimal";
      const IrPointer minimal = derived(file, options);
      CHECK(keptBytesOtherwise(graphOf(all), false) == keptBytes(graphOf(minimal)));
      CHECK(keptBytesOtherwise(graphOf(minimal), true) == keptBytes(graphOf(all)));
    }
  CompileOptions options;
  options.trainable = {"all"};
  options.keep = "regather";
  const IrPointer again = derived("biased.json", options);
  CHECK(keptBytes(graphOf(again)) == KeptBytes{.row = 2 * 2 * 768, .token = 0});
  CHECK(keptBytesOtherwise(graphOf(again), true) == KeptBytes{.row = 2 * (2048 + 2 * 768), .token = 0});
  options.keep = "all";
  const IrPointer shared = derived("shared_expert.json", options);
  CHECK(keptBytes(graphOf(shared)) == KeptBytes{.row = 7168, .token = 4608});
  CHECK(keptBytesOtherwise(graphOf(shared), false) == KeptBytes{.row = 7168, .token = 3072});
}

}  // namespace
}  // namespace sluice
