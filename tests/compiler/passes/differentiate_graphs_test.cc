// The backward of every shipped graph: its nodes, and what it keeps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "compiler/graph/read_graph.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;
using Module = mlir::OwningOpRef<mlir::ModuleOp>;

struct Derived {
  mlir::MLIRContext context;
  Module module;

  Derived(const std::string& file, const Names& trainable, const std::string& keep = "all",
          const std::vector<std::pair<std::string, std::string>>& words = {}) {
    Expected<Module> graph = readGraph("graphs/moe_ffn/" + file, {.words = words}, context);
    if (!graph) FAIL(graph.error().message);
    module = std::move(*graph);
    DifferentiateOptions options;
    options.trainable = trainable;
    options.keep = keep;
    mlir::PassManager passes(&context);
    passes.addPass(createDifferentiate(std::move(options)));
    REQUIRE(succeeded(passes.run(*module)));
  }

  moe::EntryOp entry(llvm::StringRef name) {
    moe::EntryOp found;
    module->walk([&](moe::EntryOp entry) {
      if (entry.getSymName() == name) found = entry;
    });
    REQUIRE(found);
    return found;
  }

  // "gmm act_grad", without the name of the dialect.
  Names nodes() {
    Names names;
    for (auto node : entry("backward").getOps<moe::NodeOp>())
      names.push_back(node->getName().stripDialect().str() + " " + node.getNode().str());
    return names;
  }

  template <class Op>
  Names tensors(llvm::StringRef entryName) {
    Names names;
    for (auto op : entry(entryName).getOps<Op>()) names.push_back(op.getTensor().str());
    return names;
  }
};

TEST_CASE("a layer of every activation has a backward of seven nodes") {
  for (const char* kind : {"geglu", "reglu", "swiglu_clamp"}) {
    INFO(kind);
    Derived derived("forward.json", {}, "all", {{"activation", kind}});
    CHECK(derived.nodes() == Names{"dispatch dispatch", "gmm act_grad", "gmm_weight_grad down_weight_grad",
                                   std::string("activation_grad ") + kind + "_grad", "gmm gate_grad",
                                   "gmm_weight_grad gate_up_weight_grad", "combine combine"});
    derived.module->walk([&](moe::ActivationGradOp op) {
      CHECK(text::word(op.getKind()) == kind);
      CHECK(op.getLimit().has_value() == (std::string(kind) == "swiglu_clamp"));
    });
  }
}

TEST_CASE("a shared expert has a backward beside that of the routed ones, and dx is the sum of both") {
  Derived derived("shared_expert.json", {});
  CHECK(derived.nodes() == Names{"gmm shared_act_grad", "gmm_weight_grad shared_down_weight_grad",
                                 "activation_grad shared_activation_grad", "gmm x_grad",
                                 "gmm_weight_grad shared_gate_up_weight_grad", "dispatch dispatch",
                                 "gmm act_grad", "gmm_weight_grad down_weight_grad",
                                 "activation_grad swiglu_grad", "gmm gate_grad",
                                 "gmm_weight_grad gate_up_weight_grad", "combine combine", "add x_grad_sum"});
  CHECK(derived.tensors<moe::OutputOp>("backward") == Names{"dx", "d_expert_weights", "gate_up_weight_grad",
                                                            "down_weight_grad", "shared_gate_up_weight_grad",
                                                            "shared_down_weight_grad"});
  CHECK(derived.tensors<moe::SaveOp>("forward") ==
        Names{"rows_x", "gate_up", "act", "shared_gate_up", "shared_act", "routing"});
}

TEST_CASE("a shared expert alone can be trained") {
  Derived derived("shared_expert.json", {"shared_down_weight"});
  CHECK(derived.nodes() == Names{"gmm_weight_grad shared_down_weight_grad"});
  CHECK(derived.tensors<moe::SaveOp>("forward") == Names{"shared_act", "routing"});
}

TEST_CASE("frozen base weights under adapters leave no gradient of them") {
  Derived derived("lora.json", {"gate_up_a", "gate_up_b", "down_a", "down_b"});
  CHECK(derived.nodes() == Names{"dispatch dispatch", "scale down_lora_grad", "gmm down_low_grad",
                                 "gmm_weight_grad down_b_grad", "gmm act_grad", "gmm_weight_grad down_a_grad",
                                 "gmm act_grad_2", "add act_grad_sum", "activation_grad swiglu_grad",
                                 "scale gate_up_lora_grad", "gmm gate_up_low_grad",
                                 "gmm_weight_grad gate_up_b_grad", "gmm_weight_grad gate_up_a_grad"});
  CHECK(derived.tensors<moe::OutputOp>("backward") ==
        Names{"gate_up_a_grad", "gate_up_b_grad", "down_a_grad", "down_b_grad"});
}

TEST_CASE("adapters with everything trained have gradients of everything") {
  Derived derived("lora.json", {});
  CHECK(derived.tensors<moe::OutputOp>("backward") == Names{"dx", "d_expert_weights", "gate_up_weight_grad",
                                                            "down_weight_grad", "gate_up_a_grad",
                                                            "gate_up_b_grad", "down_a_grad", "down_b_grad"});
}

TEST_CASE("two products of one activation add their gradients before its own") {
  Derived derived("two_gmms.json", {});
  CHECK(derived.nodes() == Names{"dispatch dispatch", "gmm act_grad",
                                 "gmm_weight_grad second_down_weight_grad", "gmm act_grad_2",
                                 "add act_grad_sum", "gmm_weight_grad down_weight_grad",
                                 "activation_grad swiglu_grad", "gmm gate_grad",
                                 "gmm_weight_grad gate_up_weight_grad", "combine combine"});
}

TEST_CASE("keeping little, no activation is saved, and all that are read are computed again") {
  for (const char* file :
       {"forward.json", "shared_expert.json", "lora.json", "two_gmms.json", "biased.json"}) {
    INFO(file);
    Derived derived(file, {}, "minimal");
    const Names saved = derived.tensors<moe::SaveOp>("forward");
    CHECK(std::find(saved.begin(), saved.end(), "act") == saved.end());
    CHECK(std::find(saved.begin(), saved.end(), "shared_act") == saved.end());
    CHECK(std::find(saved.begin(), saved.end(), "gate_up") != saved.end());
    const Names nodes = derived.nodes();
    CHECK(std::count(nodes.begin(), nodes.end(), "activation act_again") == 1);
    CHECK(std::count(nodes.begin(), nodes.end(), "activation shared_act_again") ==
          (std::string(file) == "shared_expert.json"));
  }
}

TEST_CASE(
    "the gradients of biases are sums of columns, and the routing weights get their part by a dot product") {
  Derived derived("biased.json", {});
  CHECK(derived.nodes() == Names{"dispatch dispatch", "gmm act_grad", "column_sum down_bias_grad",
                                 "gmm_weight_grad down_weight_grad", "activation_grad swiglu_oai_grad",
                                 "row_dot down_bias_dot", "gmm gate_grad", "column_sum gate_up_bias_grad",
                                 "gmm_weight_grad gate_up_weight_grad", "combine combine"});
  CHECK(derived.tensors<moe::SaveOp>("forward") == Names{"rows_x", "gate_up", "act", "routing"});
}

TEST_CASE(
    "the backward of a linear layer returns its rows the other way, and keeps rows only if they are "
    "gathered") {
  Derived column("../linear/column_parallel_bias.json", {});
  CHECK(column.nodes() ==
        Names{"gmm gate_grad", "column_sum bias_grad", "gmm_weight_grad weight_grad", "combine combine"});
  CHECK(column.tensors<moe::InputOp>("backward") == Names{"dy", "weight"});
  CHECK(column.tensors<moe::OutputOp>("backward") == Names{"dx", "weight_grad", "bias_grad"});
  CHECK(column.tensors<moe::SaveOp>("forward") == Names{"rows_x", "routing"});
  Derived again("../linear/column_parallel_bias.json", {}, "regather");
  CHECK(again.nodes() == Names{"gmm gate_grad", "column_sum bias_grad", "dispatch rows_x_again",
                               "gmm_weight_grad weight_grad", "combine combine"});
  CHECK(again.tensors<moe::InputOp>("backward") == Names{"dy", "x", "weight"});
  CHECK(again.tensors<moe::SaveOp>("forward") == Names{"routing"});
  Derived row("../linear/row_parallel_bias.json", {});
  CHECK(row.nodes() ==
        Names{"column_sum bias_grad", "dispatch dispatch", "gmm x_grad", "gmm_weight_grad weight_grad"});
  CHECK(row.tensors<moe::InputOp>("backward") == Names{"dy", "x", "weight"});
  CHECK(row.tensors<moe::OutputOp>("backward") == Names{"dx", "weight_grad", "bias_grad"});
  CHECK(row.tensors<moe::SaveOp>("forward") == Names{"routing"});
}

}  // namespace
}  // namespace sluice
