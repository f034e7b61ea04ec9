// The derived backward of forward.json equals that of train.json and of backward.json, node for node and edge
// for edge.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "compiler/graph/read_graph.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {
namespace {

using Lines = std::set<std::string>;
using Module = mlir::OwningOpRef<mlir::ModuleOp>;

Module import(const std::string& file, mlir::MLIRContext& context) {
  Expected<Module> module = readGraph("graphs/moe_ffn/" + file, {}, context);
  if (!module) FAIL(module.error().message);
  return std::move(*module);
}

moe::EntryOp entryOf(Module& module, llvm::StringRef name) {
  moe::EntryOp found;
  module->walk([&](moe::EntryOp entry) {
    if (entry.getSymName() == name) found = entry;
  });
  REQUIRE(found);
  return found;
}

std::string printed(mlir::Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

// The origin of a value: node and result, or the tensor of a source. backward.json has its own route.
std::string originOf(mlir::Value value) {
  if (mlir::isa<moe::RoutingType>(value.getType())) return "routing";
  auto node = value.getDefiningOp<moe::NodeOp>();
  if (!node) return moe::tensorName(value).str();
  const unsigned number = mlir::cast<mlir::OpResult>(value).getResultNumber();
  return node.getNode().str() + "#" + std::to_string(number);
}

// Op, name, attributes, operands by origin, and results by name and type.
std::string describe(moe::NodeOp node) {
  std::string text = node->getName().getStringRef().str();
  for (mlir::NamedAttribute attribute : node->getAttrDictionary()) {
    text += " " + attribute.getName().str() + "=";
    llvm::raw_string_ostream(text) << attribute.getValue();
  }
  for (mlir::Value operand : node->getOperands()) text += " <- " + originOf(operand);
  for (mlir::Value result : node->getResults()) text += " -> " + printed(result.getType());
  return text;
}

Lines nodesOf(moe::EntryOp entry) {
  Lines lines;
  for (auto node : entry.getOps<moe::NodeOp>())
    if (!mlir::isa<moe::RouteOp>(*node)) lines.insert(describe(node));
  return lines;
}

template <class Op>
Lines tensorsOf(moe::EntryOp entry) {
  Lines lines;
  for (auto op : entry.getOps<Op>())
    lines.insert(op.getTensor().str() + " " + printed(op.getValue().getType()));
  return lines;
}

template <class Op>
Lines edgesOf(moe::EntryOp entry) {
  Lines lines;
  for (auto op : entry.getOps<Op>()) lines.insert(op.getTensor().str() + " <- " + originOf(op.getValue()));
  return lines;
}

Module derive(mlir::MLIRContext& context) {
  Module module = import("forward.json", context);
  mlir::PassManager passes(&context);
  passes.addPass(createDifferentiate());
  REQUIRE(succeeded(passes.run(*module)));
  return module;
}

TEST_CASE("forward.json differentiated is train.json") {
  mlir::MLIRContext context;
  Module derived = derive(context), train = import("train.json", context);
  for (const char* name : {"forward", "backward"}) {
    INFO(name);
    moe::EntryOp found = entryOf(derived, name), expected = entryOf(train, name);
    CHECK(found.getAfter() == expected.getAfter());
    CHECK(nodesOf(found) == nodesOf(expected));
    CHECK(tensorsOf<moe::InputOp>(found) == tensorsOf<moe::InputOp>(expected));
    CHECK(tensorsOf<moe::SavedOp>(found) == tensorsOf<moe::SavedOp>(expected));
    CHECK(edgesOf<moe::SaveOp>(found) == edgesOf<moe::SaveOp>(expected));
    CHECK(edgesOf<moe::OutputOp>(found) == edgesOf<moe::OutputOp>(expected));
  }
}

TEST_CASE("the derived backward has the seven nodes of backward.json") {
  mlir::MLIRContext context;
  Module derived = derive(context), alone = import("backward.json", context);
  moe::EntryOp found = entryOf(derived, "backward"), expected = entryOf(alone, "backward");
  CHECK(nodesOf(found).size() == 7);
  CHECK(nodesOf(found) == nodesOf(expected));
  CHECK(edgesOf<moe::OutputOp>(found) == edgesOf<moe::OutputOp>(expected));
}

}  // namespace
}  // namespace sluice
