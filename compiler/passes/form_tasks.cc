#include <fmt/format.h>

#include <algorithm>

#include "compiler/analysis/finding.h"
#include "compiler/dialect/diagnostics.h"
#include "compiler/dialect/moe.h"
#include "compiler/passes/graph_buffers.h"
#include "compiler/passes/passes.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

using mlir::Value;

// Whether the node's rows are cut by a larger size than slots have. Pieces never are.
bool isOfGroups(moe::NodeOp node, int32_t slotRows) {
  const moe::SplitAttr split = node.getSplitAttr();
  return split && split.getSpace() == moe::SplitSpace::rows && split.getSize() > slotRows &&
         !(moe::isDispatch(node) || llvm::isa<moe::CombineOp>(*node));
}

bool isOfTokens(Value value) { return llvm::cast<moe::MoeTensorType>(value.getType()).hasTokens(); }

int32_t columns(Value value) {
  return static_cast<int32_t>(llvm::cast<moe::MoeTensorType>(value.getType()).getShape().back());
}

// Sets the field of a tiling that is the length of an operand's rows.
void setLength(Tiling& tiling, const OperandInfo& operand, int32_t length) {
  if (operand.isWeight || operand.mayTurn || operand.shape.empty()) return;
  switch (operand.shape.back()) {
    case 'm':
      tiling.m = length;
      break;
    case 'k':
      tiling.k = length;
      break;
    case 'n':
      tiling.n = length;
      break;
    case 'i':
      tiling.n = length / findInfo(tiling.activation).inputs;
      break;
    default:
      break;
  }
}

// The attributes of a node.
Tiling makeTiling(moe::NodeOp node, const OpInfo& op) {
  Tiling tiling;
  if (const auto kind = node->getAttrOfType<moe::ActivationKindAttr>("kind"))
    tiling.activation = kind.getValue();
  if (const auto limit = node->getAttrOfType<mlir::FloatAttr>("limit"))
    tiling.limit = toBFloat16(limit.getValue().convertToFloat());
  if (const auto alpha = node->getAttrOfType<mlir::FloatAttr>("alpha"))
    if (const float factor = alpha.getValue().convertToFloat(); factor != 1)
      tiling.alpha = factor;  // 0 stands for 1
  const auto rounding = [&](llvm::StringRef name) {
    const auto attribute = node->getAttrOfType<moe::RoundingAttr>(name);
    return attribute ? attribute.getValue() : Rounding::kNone;
  };
  tiling.roundA = rounding("round_a");
  tiling.roundB = rounding("round_b");
  if (node->hasAttr("transpose")) tiling.flags |= op.transposed;
  if (node->hasAttr(moe::kAccumulate)) tiling.flags |= op.accumulate;
  if (node->hasAttr("scale_a")) tiling.flags |= kScalesA;
  return tiling;
}

// The families of one entry.
class EntryFormer {
 public:
  // Adds to `program`, which has its limits and spaces, and to `buffers`; both outlive this.
  EntryFormer(TaskProgram& program, GraphBuffers& buffers, moe::EntryOp entry, int32_t slotRows)
      : program_(program), buffers_(buffers), entry_(entry), slotRows_(slotRows) {}

  void add(moe::NodeOp node) {
    if (auto combine = llvm::dyn_cast<moe::CombineOp>(*node)) return addCombine(node, combine);
    const std::optional<OpKind> kind = moe::findOpKind(node);
    if (!kind) return;
    const OpInfo& op = findInfo(*kind);
    Tiling tiling = makeTiling(node, op);
    const auto take = [&](std::span<const OperandInfo> operands, llvm::ArrayRef<Value> values) {
      std::vector<BufferId> ids;
      for (const auto& [operand, value] : llvm::zip(operands, values)) {
        ids.push_back(of(value));
        if (value) setLength(tiling, operand, columns(value));
      }
      return ids;
    };
    std::vector<BufferId> reads = take(op.reads, moe::collectReads(node)),
                          writes = take(op.writes, moe::collectWrites(node));
    family(node, "", *kind, tiling, std::move(reads), std::move(writes));
  }

  // Lines about nodes with no core to run on; empty: there are none.
  const std::string& errors() const { return errors_; }

 private:
  // The way back to the tokens' ranks, and the sum there.
  void addCombine(moe::NodeOp node, moe::CombineOp op) {
    const int32_t hidden = columns(op.getRows());
    const Dim pairs{Extent::kPairs, 0};
    const BufferId returned =
        buffers_.addTemp(entry_.getSymName(), node.getNode().str() + ".returned",
                         {pairs, {Extent::kFixed, hidden}}, buffers_.all()[of(op.getRows()).value].type);
    BufferId scalars;
    if (op.getScalars())
      scalars = buffers_.addTemp(entry_.getSymName(), buffers_.all()[returned.value].name + "_scalars",
                                 {pairs}, DType::kF32);
    family(node, ".return", OpKind::kCombineReturn, {.n = hidden}, {of(op.getRows()), of(op.getScalars())},
           {returned, scalars});
    family(node, ".sum", OpKind::kCombineSum, {.n = hidden, .k = program_.topK},
           {returned, of(op.getWeights()), scalars, of(op.getBias())},
           {of(op.getSum()), of(op.getTokenScalars())});
  }

  void family(moe::NodeOp node, llvm::StringRef suffix, OpKind op, const Tiling& tiling,
              std::vector<BufferId> reads, std::vector<BufferId> writes) {
    Family family;
    family.name = (node.getNode() + suffix).str();
    family.source = formatLocation(node->getLoc());
    family.entry = EntryId{static_cast<uint32_t>(program_.entries.size() - 1)};
    family.op = op;
    family.tiling = tiling;
    family.reads = std::move(reads);
    family.writes = std::move(writes);
    trimOperands(family);
    family.space = findSpaceId(spaceFor(family, nodeSpace(node)));
    if (program_.cubeCores != 0) {
      family.core = findInfo(op).core;
      if (family.core == CoreKind::kUnified) refuse(family);
    }
    program_.families.push_back(std::move(family));
  }

  void refuse(const Family& family) {
    const Error error = errorAt(
        family, fmt::format("node '{}' is a product and vector work in one, but the cores that run these are "
                            "apart: expected two nodes",
                            family.name));
    errors_ += (errors_.empty() ? "" : "\n") + error.message;
  }

  SpaceId findSpaceId(SpaceKind kind) const {
    const auto isOf = [kind](const Space& space) { return space.kind == kind; };
    const auto space = std::ranges::find_if(program_.spaces, isOf);
    return SpaceId{static_cast<uint32_t>(space - program_.spaces.begin())};
  }

  BufferId of(Value value) const { return buffers_.of(value); }

  // The space of what a node computes row by row.
  SpaceKind nodeSpace(moe::NodeOp node) const {
    if (isOfTokens(node->getOperand(0))) return SpaceKind::kTokens;
    return isOfGroups(node, slotRows_) ? SpaceKind::kGroups : SpaceKind::kRows;
  }

  TaskProgram& program_;
  GraphBuffers& buffers_;
  moe::EntryOp entry_;
  const int32_t slotRows_;
  std::string errors_;
};

// The smaller of the sizes by which rows are cut.
int32_t findSlotRows(moe::GraphOp graph) {
  int64_t least = 0;
  graph.walk([&](moe::NodeOp node) {
    const moe::SplitAttr split = node.getSplitAttr();
    if (!split || split.getSpace() != moe::SplitSpace::rows) return;
    least = least == 0 ? split.getSize() : std::min(least, split.getSize());
  });
  return least == 0 ? 16 : static_cast<int32_t>(least);
}

// Only sums over all tokens are tasks of space once, and only nodes cut by a larger size are tasks of space
// groups; a program without such nodes does not have the space.
std::vector<Space> makeSpaces(moe::GraphOp graph, int32_t slotRows) {
  int32_t tokens = 1, groups = 0;
  bool hasOnce = false;
  graph.walk([&](moe::NodeOp node) {
    if (moe::isSum(node)) hasOnce |= isOfTokens(node->getOperand(0));
    const moe::SplitAttr split = node.getSplitAttr();
    if (split && split.getSpace() == moe::SplitSpace::tokens) tokens = static_cast<int32_t>(split.getSize());
    if (isOfGroups(node, slotRows)) groups = static_cast<int32_t>(split.getSize());
  });
  std::vector<Space> spaces;
  const auto add = [&](SpaceKind kind, int32_t size) { spaces.push_back({text::word(kind), kind, size, 1}); };
  add(SpaceKind::kTokens, tokens);
  for (SpaceKind kind : {SpaceKind::kRows, SpaceKind::kSends, SpaceKind::kReturns}) add(kind, slotRows);
  add(SpaceKind::kExperts, 1);
  if (hasOnce) add(SpaceKind::kOnce, 1);
  if (groups > 0) add(SpaceKind::kGroups, groups);
  return spaces;
}

TaskProgram makeProgramHeader(moe::GraphOp graph, const Target& target) {
  TaskProgram program;
  program.name = graph.getSymName().str();
  program.target = target.name;
  for (const mlir::NamedAttribute& symbol : graph.getSymbols())
    program.symbols.push_back(
        {symbol.getName().str(), llvm::cast<mlir::IntegerAttr>(symbol.getValue()).getInt()});
  program.mesh = graph.getMesh();
  program.experts = static_cast<int32_t>(graph.getExperts());
  program.spare = static_cast<int32_t>(graph.getSpare().value_or(0));
  program.topK = static_cast<int32_t>(graph.getTopK());
  program.maxTokens = static_cast<int32_t>(graph.getMaxTokens());
  program.cores = target.cubeCores == 0 ? target.cores : 0;
  program.cubeCores = target.cubeCores;
  program.vectorCores = target.vectorCores;
  return program;
}

// The ids that an entry routes by, if its route has any, or the earlier entry that saved its routing.
Entry makeEntry(moe::EntryOp op, const GraphBuffers& buffers, const llvm::StringMap<EntryId>& routings) {
  Entry entry{.name = op.getSymName().str(), .expertIds = {}, .routing = {}, .placement = {}};
  for (auto route : op.getOps<moe::RouteOp>()) {
    entry.expertIds = buffers.of(route.getIds());  // none: every token goes to every expert
    entry.placement = buffers.of(route.getPlacement());
    return entry;
  }
  for (auto saved : op.getOps<moe::SavedOp>())
    if (llvm::isa<moe::RoutingType>(saved.getValue().getType())) {
      entry.routing = routings.lookup(saved.getTensor());
      break;
    }
  return entry;
}

Expected<TaskProgram> form(moe::GraphOp graph, TaskProgram program) {
  const int32_t slotRows = findSlotRows(graph);
  program.spaces = makeSpaces(graph, slotRows);
  GraphBuffers buffers(graph);
  llvm::StringMap<EntryId> routings;  // by the name a routing is saved under
  for (auto entry : graph.getOps<moe::EntryOp>()) {
    buffers.enter(entry);
    const EntryId id{static_cast<uint32_t>(program.entries.size())};
    program.entries.push_back(makeEntry(entry, buffers, routings));
    for (auto save : entry.getOps<moe::SaveOp>())
      if (llvm::isa<moe::RoutingType>(save.getValue().getType())) routings[save.getTensor()] = id;
    EntryFormer former(program, buffers, entry, slotRows);
    for (auto node : entry.getOps<moe::NodeOp>()) former.add(node);
    if (!former.errors().empty()) return Error{former.errors()};
  }
  program.buffers = buffers.all();
  return program;
}

}  // namespace

Expected<TaskProgram> formTasks(mlir::ModuleOp module, const Target& target, std::string optionLine,
                                uint64_t graphHash) {
  const auto graphs = llvm::to_vector(module.getOps<moe::GraphOp>());
  if (graphs.size() != 1)
    return Error{reportLine(formatLocation(module.getLoc()), "error",
                            fmt::format("has {} moe.graph ops, expected one", graphs.size()))};
  TaskProgram program = makeProgramHeader(graphs.front(), target);
  program.options = std::move(optionLine);
  program.graphHash = graphHash;
  return form(graphs.front(), std::move(program));
}

}  // namespace sluice
