#include <fmt/format.h>

#include <map>
#include <set>

#include "compiler/dialect/moe_gradient.h"
#include "compiler/export/graph_text.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// A quoted string of the dot language.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

// Light fills that differ in print, too: communication, products, weight gradients, element-wise, routing.
constexpr std::string_view kCommunication = "#cfe2f3", kProduct = "#f9cb9c", kWeightGrad = "#d9ead3",
                           kElementWise = "#fff2cc", kRouting = "#eeeeee";

std::string_view chooseColour(mlir::Operation* op) {
  if (llvm::isa<moe::RouteOp>(op)) return kRouting;
  if (moe::isDispatch(op) || llvm::isa<moe::CombineOp>(op)) return kCommunication;
  if (llvm::isa<moe::GmmOp, moe::GmmActivationOp, moe::GmmActivationGradOp>(op)) return kProduct;
  return moe::isSum(op) ? kWeightGrad : kElementWise;
}

std::string_view chooseColour(const Family& family) {
  if (findInfo(family.op).multiplies()) return kProduct;
  const Domain domain = findDomain(family);
  if (domain == Domain::kSums) return kWeightGrad;
  return domain == Domain::kRows ? kElementWise : kCommunication;
}

class DotPrinter {
 public:
  DotPrinter(moe::GraphOp graph, const TaskProgram& program) : graph_(graph), program_(program) {}

  std::string run() {
    findEvents();
    text_ = fmt::format("digraph {} {{\n  rankdir=TB; compound=true; newrank=true;\n", quoted(program_.name));
    text_ += "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11];\n";
    text_ += "  edge [fontname=\"Helvetica\", fontsize=9];\n";
    for (uint32_t e = 0; e < program_.entries.size(); ++e) addEntry(e);
    for (const std::string& edge : handOvers_) text_ += "  " + edge;
    return text_ + "}\n";
  }

 private:
  struct Event {
    std::set<uint32_t> producers;
    std::set<uint32_t> consumers;
  };

  void findEvents() {
    for (uint32_t f = 0; f < program_.families.size(); ++f) {
      for (EventId id : program_.families[f].signals) events_[id.value].producers.insert(f);
      for (EventId id : program_.families[f].waits) events_[id.value].consumers.insert(f);
    }
  }

  void line(int depth, const std::string& text) {
    text_ += std::string(static_cast<size_t>(2 * depth), ' ') + text;
  }

  void addEntry(uint32_t index) {
    const std::string& name = program_.entries[index].name;
    line(1, fmt::format("subgraph cluster_{} {{\n", index));
    line(2, fmt::format("label={}; style=rounded;\n", quoted("entry " + name)));
    line(2, fmt::format("subgraph cluster_{}_graph {{\n      label=\"graph\"; style=dotted;\n", index));
    size_t e = 0;
    for (auto entry : graph_.getOps<moe::EntryOp>()) {
      if (entry.getSymName() == name) addNodes(entry, e);
      ++e;
    }
    line(2, "}\n");
    line(2, fmt::format("subgraph cluster_{}_families {{\n      label=\"families\"; style=dotted;\n", index));
    for (uint32_t f = 0; f < program_.families.size(); ++f)
      if (program_.families[f].entry.value == index) addFamily(f);
    for (const auto& [id, event] : events_)
      if (program_.events[id].entry.value == index) addEvent(program_.events[id], event);
    line(2, "}\n");
    line(1, "}\n");
  }

  void addNodes(moe::EntryOp entry, size_t index) {
    size_t number = 0;
    for (auto node : entry.getOps<moe::NodeOp>()) {
      const std::string id = fmt::format("n_{}_{}", index, number++);
      const std::string label = node.getNode().str() + "\n" + node->getName().stripDialect().str();
      line(3, fmt::format("{} [label={}, fillcolor=\"{}\"];\n", id, quoted(label), chooseColour(node)));
      for (mlir::Value operand : node->getOperands()) addUse(operand, id);
      for (mlir::Value result : node->getResults()) makers_[result] = id;
    }
    for (auto save : entry.getOps<moe::SaveOp>())
      savers_[save.getTensor().str()] = makers_.lookup(save.getValue());
  }

  // Draws an edge from the node that makes a tensor; if an earlier entry makes it, the edge crosses the
  // clusters.
  void addUse(mlir::Value tensor, const std::string& to) {
    if (const auto maker = makers_.find(tensor); maker != makers_.end())
      line(3, fmt::format("{} -> {} [label={}];\n", maker->second, to, quoted(tensorLabel(tensor))));
    auto saved = tensor.getDefiningOp<moe::SavedOp>();
    const auto saver = savers_.find(saved ? saved.getTensor().str() : std::string());
    if (saver != savers_.end())
      handOvers_.push_back(fmt::format("{} -> {} [label={}, color=gray, fontcolor=gray];\n", saver->second,
                                       to, quoted(saver->first)));
  }

  // A tensor that leaves its entry has the name under which it leaves.
  static std::string tensorLabel(mlir::Value tensor) {
    for (mlir::Operation* user : tensor.getUsers())
      if (llvm::isa<moe::OutputOp, moe::SaveOp>(user))
        return user->getAttrOfType<mlir::StringAttr>("tensor").str();
    return moe::valueName(tensor);
  }

  void addFamily(uint32_t f) {
    const Family& family = program_.families[f];
    const Space& space = program_.at(family.space);
    std::string label = fmt::format("{}\n{}", family.name, space.name);
    if (space.slotSize > 1) label += fmt::format(" by {}", space.slotSize);
    label += fmt::format("\n{} tile{}", family.tiles, family.tiles == 1 ? "" : "s");
    if (family.tiling.tileM > 0 && family.tiles > 1) {
      label += fmt::format(" of {} x {}", family.tiling.tileM, family.tiling.tileN);
    } else if (family.tiles > 1) {
      label += fmt::format(" of {}", family.tiling.tileN);
    }
    line(3, fmt::format("f_{} [label={}, fillcolor=\"{}\"];\n", f, quoted(label), chooseColour(family)));
  }

  void addEvent(const EventArray& array, const Event& event) {
    for (uint32_t producer : event.producers)
      for (uint32_t consumer : event.consumers) {
        const bool wide = !isSlotLocal(program_.at(program_.families[producer].space).kind,
                                       program_.at(program_.families[consumer].space).kind, array.space);
        line(3, fmt::format("f_{} -> f_{} [label={}{}{}];\n", producer, consumer, quoted(array.name),
                            wide ? ", style=dashed" : "", array.remote ? ", color=blue" : ""));
      }
  }

  moe::GraphOp graph_;
  const TaskProgram& program_;
  std::string text_;
  std::map<uint32_t, Event> events_;                 // by EventId
  llvm::DenseMap<mlir::Value, std::string> makers_;  // node by result
  std::map<std::string, std::string> savers_;        // likewise, by the name under which it is saved
  std::vector<std::string> handOvers_;
};

}  // namespace

std::string printDot(moe::GraphOp graph, const TaskProgram& program) {
  return DotPrinter(graph, program).run();
}

}  // namespace sluice
