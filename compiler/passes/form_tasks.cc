#include "compiler/passes/form_tasks.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/analysis/finding.h"
#include "compiler/dialect/diagnostics.h"
#include "compiler/passes/graph_buffers.h"
#include "llvm/ADT/TypeSwitch.h"
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

template <class Op>
Tiling withActivation(Op op, Tiling tiling) {
  tiling.activation = op.getKind();
  if (op.getLimit()) tiling.limit = toBFloat16(op.getLimit()->convertToFloat());
  return tiling;
}

// 0 stands for 1.
float alphaOf(const llvm::APFloat& factor) {
  const float alpha = factor.convertToFloat();
  return alpha == 1 ? 0 : alpha;
}
template <class Op>
float alphaOf(Op op) {
  return op.getAlpha() ? alphaOf(*op.getAlpha()) : 0;
}

template <class Op>
Tiling product(OpKind kind, Op op, int32_t width) {
  return {.n = width,
          .k = columns(op.getRows()),
          .flags = op.getTranspose() ? infoOf(kind).transposed : uint16_t{0},
          .roundA = op.getRoundA().value_or(Rounding::kNone),
          .roundB = op.getRoundB().value_or(Rounding::kNone),
          .alpha = alphaOf(op)};
}

// The families of one entry.
class EntryFormer {
 public:
  // Adds to `program`, which has its limits and spaces, and to `buffers`; both outlive this.
  EntryFormer(TaskProgram& program, GraphBuffers& buffers, moe::EntryOp entry, int32_t slotRows)
      : program_(program), buffers_(buffers), entry_(entry), slotRows_(slotRows) {}

  void add(moe::NodeOp node) {
    llvm::TypeSwitch<mlir::Operation*>(node)
        .Case([&](moe::DispatchOp op) {
          family(node, "", OpKind::kDispatch, SpaceKind::kSends, {.n = columns(op.getRows())},
                 {of(op.getTokens()), of(op.getWeights())}, {of(op.getRows()), of(op.getRowWeights())});
        })
        .Case([&](moe::DispatchCodesOp op) {
          family(node, "", OpKind::kDispatch, SpaceKind::kSends, {.n = columns(op.getRows())},
                 {of(op.getCodes()), {}, of(op.getScales())}, {of(op.getRows()), {}, of(op.getRowScales())});
        })
        .Case([&](moe::GmmOp op) {
          family(
              node, "", OpKind::kGmm, spaceOf(node, op.getProduct()),
              product(OpKind::kGmm, op, columns(op.getProduct())),
              {of(op.getRows()), of(op.getWeight()), of(op.getBias()), of(op.getRowScale()),
               of(op.getWeightScale()), of(op.getWeightZero()), of(op.getRowAmax()), of(op.getWeightAmax())},
              {of(op.getProduct())});
        })
        .Case([&](moe::GmmWeightGradOp op) {
          family(node, "", OpKind::kGmmWeightGrad,
                 isOfTokens(op.getA()) ? SpaceKind::kOnce : SpaceKind::kExperts,
                 {.m = columns(op.getA()),
                  .n = columns(op.getB()),
                  .flags = static_cast<uint16_t>(
                      (op.getAccumulate() ? infoOf(OpKind::kGmmWeightGrad).accumulate : 0) |
                      (op.getScaleA() ? kScalesA : 0)),
                  .roundA = op.getRoundA().value_or(Rounding::kNone),
                  .roundB = op.getRoundB().value_or(Rounding::kNone),
                  .alpha = alphaOf(op)},
                 {of(op.getA()), of(op.getB()), of(op.getRowScale()), of(op.getAAmax()), of(op.getBAmax()),
                  of(op.getScales()), of(op.getEndScales())},
                 {of(op.getGrad())});
        })
        .Case([&](moe::AmaxOp op) {
          family(node, "", OpKind::kAmax, isOfTokens(op.getA()) ? SpaceKind::kOnce : SpaceKind::kExperts,
                 {.n = columns(op.getA())}, {of(op.getA())}, {of(op.getAmax())});
        })
        .Case([&](moe::EncodeOp op) {
          std::vector<BufferId> results = {of(op.getCodes())};
          for (const Value scales : op.getScales()) results.push_back(of(scales));
          family(node, "", OpKind::kEncode,
                 !op.isDown()                ? spaceOf(node, op.getValue())
                 : isOfTokens(op.getValue()) ? SpaceKind::kOnce
                                             : SpaceKind::kExperts,
                 {.n = columns(op.getValue()), .roundA = op.getRoundA()},
                 {of(op.getValue()), of(op.getAmax()), of(op.getValueScale())}, std::move(results));
        })
        .Case([&](moe::ColumnSumOp op) {
          family(node, "", OpKind::kColumnSum, isOfTokens(op.getA()) ? SpaceKind::kOnce : SpaceKind::kExperts,
                 {.n = columns(op.getA()),
                  .flags = op.getAccumulate() ? infoOf(OpKind::kColumnSum).accumulate : uint16_t{0}},
                 {of(op.getA()), of(op.getRowScale())}, {of(op.getSums())});
        })
        .Case([&](moe::RowDotOp op) {
          family(node, "", OpKind::kRowDot, spaceOf(node, op.getA()), {.n = columns(op.getA())},
                 {of(op.getA()), of(op.getB()), of(op.getAddend())}, {of(op.getDots())});
        })
        .Case([&](moe::ActivationOp op) {
          family(node, "", OpKind::kActivation, spaceOf(node, op.getAct()),
                 withActivation(op, {.n = columns(op.getAct())}), {of(op.getGateUp())}, {of(op.getAct())});
        })
        .Case([&](moe::ActivationGradOp op) {
          family(node, "", OpKind::kActivationGrad, spaceOf(node, op.getActGrad()),
                 withActivation(op, {.n = columns(op.getActGrad())}),
                 {of(op.getActGrad()), of(op.getGateUp()), of(op.getRowWeights())},
                 {of(op.getGateUpGrad()), of(op.getRowWeightGrad()), of(op.getWeightedAct())});
        })
        .Case([&](moe::CombineOp op) { addCombine(node, op); })
        .Case([&](moe::AddOp op) {
          family(node, "", OpKind::kAdd, spaceOf(node, op.getSum()), {.n = columns(op.getSum())},
                 {of(op.getA()), of(op.getB())}, {of(op.getSum())});
        })
        .Case([&](moe::ScaleOp op) {
          family(node, "", OpKind::kScale, spaceOf(node, op.getScaled()),
                 {.n = columns(op.getScaled()), .alpha = alphaOf(op.getAlpha())},
                 {of(op.getValue()), of(op.getRowWeights())}, {of(op.getScaled())});
        })
        .Case([&](moe::QuantizeOp op) {
          family(node, "", OpKind::kQuantize, spaceOf(node, op.getCodes()), {.n = columns(op.getCodes())},
                 {of(op.getValue()), of(op.getColumnScale())}, {of(op.getCodes()), of(op.getScale())});
        })
        .Case([&](moe::GmmActivationOp op) {
          family(
              node, "", OpKind::kGmmActivation, spaceOf(node, op.getAct()),
              withActivation(op, product(OpKind::kGmmActivation, op, columns(op.getAct()))),
              {of(op.getRows()), of(op.getWeight()), of(op.getBias()), of(op.getRowScale()),
               of(op.getWeightScale()), of(op.getWeightZero()), of(op.getRowAmax()), of(op.getWeightAmax())},
              {of(op.getAct()), of(op.getGateUp())});
        })
        .Case([&](moe::GmmActivationGradOp op) {
          family(node, "", OpKind::kGmmActivationGrad, spaceOf(node, op.getGateUpGrad()),
                 withActivation(op, product(OpKind::kGmmActivationGrad, op,
                                            columns(op.getGateUp()) / infoOf(op.getKind()).inputs)),
                 {of(op.getRows()), of(op.getWeight()), of(op.getGateUp()), of(op.getRowWeights()),
                  of(op.getRowScale()), of(op.getWeightScale()), of(op.getWeightZero()), of(op.getRowAmax()),
                  of(op.getWeightAmax())},
                 {of(op.getGateUpGrad()), of(op.getRowWeightGrad()), of(op.getWeightedAct())});
        });
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
    family(node, ".return", OpKind::kCombineReturn, SpaceKind::kReturns, {.n = hidden},
           {of(op.getRows()), of(op.getScalars())}, {returned, scalars});
    family(node, ".sum", OpKind::kCombineSum, SpaceKind::kTokens, {.n = hidden, .k = program_.topK},
           {returned, of(op.getWeights()), scalars, of(op.getBias())},
           {of(op.getSum()), of(op.getTokenScalars())});
  }

  void family(moe::NodeOp node, llvm::StringRef suffix, OpKind op, SpaceKind space, const Tiling& tiling,
              std::vector<BufferId> reads, std::vector<BufferId> writes) {
    Family family;
    family.name = (node.getNode() + suffix).str();
    family.source = sourceOf(node->getLoc());
    family.entry = EntryId{static_cast<uint32_t>(program_.entries.size() - 1)};
    family.op = op;
    family.space = idOf(space);
    family.tiling = tiling;
    family.reads = std::move(reads);
    family.writes = std::move(writes);
    trimOperands(family);
    if (program_.cubeCores != 0) {
      family.core = infoOf(op).core;
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

  SpaceId idOf(SpaceKind kind) const {
    const auto isOf = [kind](const Space& space) { return space.kind == kind; };
    const auto space = std::ranges::find_if(program_.spaces, isOf);
    return SpaceId{static_cast<uint32_t>(space - program_.spaces.begin())};
  }

  BufferId of(Value value) const { return buffers_.of(value); }

  // Of what is computed row by row.
  SpaceKind spaceOf(moe::NodeOp node, Value value) const {
    if (isOfTokens(value)) return SpaceKind::kTokens;
    return isOfGroups(node, slotRows_) ? SpaceKind::kGroups : SpaceKind::kRows;
  }

  TaskProgram& program_;
  GraphBuffers& buffers_;
  moe::EntryOp entry_;
  const int32_t slotRows_;
  std::string errors_;
};

// The smaller of the sizes by which rows are cut.
int32_t slotRowsOf(moe::GraphOp graph) {
  int64_t least = 0;
  graph.walk([&](moe::NodeOp node) {
    const moe::SplitAttr split = node.getSplitAttr();
    if (!split || split.getSpace() != moe::SplitSpace::rows) return;
    least = least == 0 ? split.getSize() : std::min(least, split.getSize());
  });
  return least == 0 ? 16 : static_cast<int32_t>(least);
}

// Sums over all tokens are the only tasks of space once, and nodes cut by a larger size those of groups;
// other programs do not have these.
std::vector<Space> spacesOf(moe::GraphOp graph, int32_t slotRows) {
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

TaskProgram headerOf(moe::GraphOp graph, const Target& target) {
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
Entry entryOf(moe::EntryOp op, const GraphBuffers& buffers, const llvm::StringMap<EntryId>& routings) {
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
  const int32_t slotRows = slotRowsOf(graph);
  program.spaces = spacesOf(graph, slotRows);
  GraphBuffers buffers(graph);
  llvm::StringMap<EntryId> routings;  // by the name a routing is saved under
  for (auto entry : graph.getOps<moe::EntryOp>()) {
    buffers.enter(entry);
    const EntryId id{static_cast<uint32_t>(program.entries.size())};
    program.entries.push_back(entryOf(entry, buffers, routings));
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
    return Error{reportLine(sourceOf(module.getLoc()), "error",
                            fmt::format("has {} moe.graph ops, expected one", graphs.size()))};
  TaskProgram program = headerOf(graphs.front(), target);
  program.options = std::move(optionLine);
  program.graphHash = graphHash;
  return form(graphs.front(), std::move(program));
}

}  // namespace sluice
