#include "compiler/report/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/analysis/events.h"
#include "compiler/dialect/diagnostics.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

bool contains(const std::vector<EventId>& events, EventId event) {
  return std::find(events.begin(), events.end(), event) != events.end();
}

bool contains(const std::vector<BufferId>& buffers, BufferId buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

std::string whyInSpace(SpaceKind kind) {
  return fmt::format("space {}: {}", text::word(kind), findInfo(kind).what);
}

std::string untilText(const EventArray& event) {
  const std::string_view slot = event.space == EventSpace::kGroups ? "group" : "slot";
  switch (event.rule) {
    case ThresholdRule::kConstant:
      return event.factor == 1 ? fmt::format("until the task of the {} is done", slot)
                               : fmt::format("until all {} tiles of the {} are done", event.factor, slot);
    case ThresholdRule::kRowsOfSlot:
      return fmt::format("until all rows of the {} have arrived", slot);
    case ThresholdRule::kSlotsOfExpert:
      return fmt::format("until all slots of the expert are done, {} tasks each", event.factor);
    case ThresholdRule::kRowsOfExpert:
      return "until all rows of the expert have arrived";
    case ThresholdRule::kValidPairs:
      return "until the rows of all (token, k) pairs are back";
    case ThresholdRule::kSlotsOfTokens:
      return fmt::format("until all slots of tokens are done, {} tasks each", event.factor);
    case ThresholdRule::kSlotsOfGroup:
      return fmt::format("until all slots of the group are done, {} tasks each", event.factor);
    case ThresholdRule::kGroupsOfExpert:
      return fmt::format("until all groups of the expert are done, {} tasks each", event.factor);
    case ThresholdRule::kExpertsOfRank:
      return fmt::format("until all experts of this rank are done, {} tasks each", event.factor);
    case ThresholdRule::kSlotsOfRows:
      return fmt::format("until all slots of rows are done, {} tasks each", event.factor);
    case ThresholdRule::kSlotsOfGroups:
      return fmt::format("until all groups of slots are done, {} tasks each", event.factor);
  }
  return {};
}

// Whether buffers of one region share bytes of its stride.
bool overlap(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + bytesPerUnit(b) && b.offset < a.offset + bytesPerUnit(a);
}

std::string nodeLocation(moe::NodeOp node) { return formatLocation(node->getLoc()); }

bool declares(moe::NodeOp node, SpaceKind cut, int32_t size) {
  const moe::SplitAttr split = node.getSplitAttr();
  const moe::SplitSpace space = cut == SpaceKind::kTokens ? moe::SplitSpace::tokens : moe::SplitSpace::rows;
  return split && split.getSpace() == space && split.getSize() == size;
}

std::string_view unitName(SpaceKind cut) { return cut == SpaceKind::kTokens ? "tokens" : "rows"; }

// The reasons in an explanation, one line of text each. Reads a verified program and the graph it was
// compiled from; owns neither.
class Reasons {
 public:
  Reasons(const TaskProgram& program, moe::GraphOp graph, const std::vector<Decision>& decisions);

  // Space, slots, tiles, decisions.
  std::vector<std::string> ofFamily(FamilyId family) const;
  EventExplanation ofWait(FamilyId family, EventId event) const;
  EventExplanation ofSignal(FamilyId family, EventId event) const;
  std::vector<std::string> ofSharing(const std::vector<BufferId>& buffers) const;

 private:
  // Null if no node became the family.
  moe::NodeOp findNode(const Family& family) const;
  std::vector<moe::NodeOp> listNodes(const std::string& entry) const;
  std::string slotReason(FamilyId family, SpaceKind cut) const;
  std::string tileReason(const Family& family) const;
  std::string fusionReason(const Family& family) const;
  std::string chosen(DecidedSize size, std::string_view option) const;
  FamilyId findWriter(BufferId buffer, EntryId entry) const;

  const TaskProgram& program_;
  mutable moe::GraphOp graph_;  // mutable, because its accessors are not const
  const std::vector<Decision>& decisions_;
  CoverageTable coverage_;
};

Reasons::Reasons(const TaskProgram& program, moe::GraphOp graph, const std::vector<Decision>& decisions)
    : program_(program), graph_(graph), decisions_(decisions), coverage_(computeCoverage(program)) {}

std::vector<moe::NodeOp> Reasons::listNodes(const std::string& name) const {
  std::vector<moe::NodeOp> nodes;
  for (auto entry : graph_.getOps<moe::EntryOp>())
    if (entry.getSymName() == name) llvm::append_range(nodes, entry.getOps<moe::NodeOp>());
  return nodes;
}

// Found by name; nodes that a pass has joined, by place.
moe::NodeOp Reasons::findNode(const Family& family) const {
  const std::vector<moe::NodeOp> nodes = listNodes(program_.at(family.entry).name);
  for (moe::NodeOp node : nodes) {
    const std::string name = node.getNode().str();
    if (family.name == name || family.name == name + ".return" || family.name == name + ".sum") return node;
  }
  for (moe::NodeOp node : nodes)
    if (family.source == nodeLocation(node)) return node;
  return {};
}

FamilyId Reasons::findWriter(BufferId buffer, EntryId entry) const {
  FamilyId elsewhere;
  for (uint32_t f = 0; f < program_.families.size(); ++f) {
    if (!contains(program_.families[f].writes, buffer)) continue;
    if (program_.families[f].entry == entry) return FamilyId{f};
    elsewhere = FamilyId{f};
  }
  return elsewhere;
}

// The option; else the decision about that size; else the target.
std::string Reasons::chosen(DecidedSize size, std::string_view option) const {
  if (!option.empty() && program_.options.find(option) != std::string::npos)
    return fmt::format("as {} says", option);
  for (const Decision& decision : decisions_)
    if ((decision.sizes & size) != 0) return fmt::format("as decided: {} ({})", decision.what, decision.why);
  return fmt::format("as the target '{}' says", program_.target);
}

std::string Reasons::slotReason(FamilyId id, SpaceKind cut) const {
  const Family& family = program_.at(id);
  const int32_t size = program_.at(family.space).slotSize;
  const std::string slots =
      fmt::format("{} of {} {}", cut == SpaceKind::kGroups ? "groups" : "slots", size, unitName(cut));
  if (moe::NodeOp own = findNode(family); own && declares(own, cut, size))
    return fmt::format("{}: declared by node '{}' at {}", slots, own.getNode().str(), nodeLocation(own));
  const bool grouped = findSpace(program_, SpaceKind::kGroups) != nullptr;
  if (grouped && cuttingSpace(program_.at(family.space).kind) != program_.at(family.space).kind)
    return fmt::format("{}: pieces are cut by the smaller of the two sizes of rows", slots);
  for (BufferId b : family.reads) {
    if (!b) continue;
    const FamilyId writer = findWriter(b, family.entry);
    if (!writer || writer == id || cuttingSpace(program_.at(program_.at(writer).space).kind) != cut) continue;
    if (program_.at(writer).entry == family.entry)
      return fmt::format("{}: those of '{}', which makes '{}'", slots, program_.at(writer).name,
                         program_.at(b).name);
    return fmt::format("{}: those of '{}' of entry '{}', which saved '{}'", slots, program_.at(writer).name,
                       program_.at(program_.at(writer).entry).name, program_.at(b).name);
  }
  for (const Entry& entry : program_.entries)
    for (moe::NodeOp node : listNodes(entry.name))
      if (declares(node, cut, size))
        return fmt::format("{}: no producer has any, so those that node '{}' of entry '{}' declares at {}",
                           slots, node.getNode().str(), entry.name, nodeLocation(node));
  const std::string from =
      cut == SpaceKind::kTokens ? chosen(kDecidedTokens, "") : chosen(kDecidedRows, "--slot-rows");
  return fmt::format("{}: nothing declares any, {}", slots, from);
}

std::string Reasons::tileReason(const Family& family) const {
  const Tiling& t = family.tiling;
  const Cut cut = findInfo(family.op).cut;
  if (cut == Cut::kWhole) return "one tile: a task takes whole rows";
  const std::string from = chosen(cut == Cut::kRectangles ? kDecidedGradTile : kDecidedColumns, "--tile");
  if (cut == Cut::kRectangles)
    return fmt::format("{} tiles: {} x {} elements in even rectangles of {} x {}, {}", family.tiles, t.m, t.n,
                       t.tileM, t.tileN, from);
  if (family.tiles > 1)
    return fmt::format("{} tiles: {} columns in even parts of {}, {}", family.tiles, t.n, t.tileN, from);
  if (needsWholeRows(family)) return "one tile: the gradient of a row's weight is a sum over all columns";
  return fmt::format("one tile of {} columns, {}", t.n, from);
}

// The two nodes are found by name, because fuse joins their names.
std::string Reasons::fusionReason(const Family& family) const {
  const bool gradient = family.op == OpKind::kGmmActivationGrad;
  std::string text = "fused: a gmm and the activation of its product are one task";
  if (gradient) text = "fused: a gmm and the activation gradient that reads its product are one task";
  const std::vector<moe::NodeOp> nodes = listNodes(program_.at(family.entry).name);
  for (moe::NodeOp gmm : nodes)
    for (moe::NodeOp activation : nodes) {
      const std::string first = gmm.getNode().str(), second = activation.getNode().str();
      if (llvm::isa<moe::GmmOp>(*gmm) && family.name == first + "_" + second)
        text = fmt::format("fused: '{}' and '{}' are one task", first, second);
    }
  const BufferId kept = gradient ? BufferId{} : findBuffer(family, &Operands::gateUp);
  return text + (kept ? fmt::format("; the product is written as '{}', since it is read elsewhere",
                                    program_.at(kept).name)
                      : "; the product between them is never written");
}

std::vector<std::string> Reasons::ofFamily(FamilyId id) const {
  const Family& family = program_.at(id);
  const SpaceKind kind = program_.at(family.space).kind, cut = cuttingSpace(kind);
  std::vector<std::string> why = {whyInSpace(kind)};
  if (cut == SpaceKind::kRows || cut == SpaceKind::kGroups || cut == SpaceKind::kTokens)
    why.push_back(slotReason(id, cut));
  why.push_back(tileReason(family));
  if (findInfo(family.op).core == CoreKind::kUnified) why.push_back(fusionReason(family));
  moe::NodeOp node = findNode(family);
  // a pass that adds a node gives it the location of another one
  const bool isOfNode = node && family.name.starts_with(node.getNode().str());
  const std::string nodeName = isOfNode ? node.getNode().str() : family.name;
  for (const Decision& decision : decisions_)
    if (!decision.node.empty() && (decision.node == family.name || decision.node == nodeName) &&
        (decision.entry.empty() || decision.entry == program_.at(family.entry).name))
      why.push_back(fmt::format("{}: {}", decision.what, decision.why));
  return why;
}

EventExplanation Reasons::ofWait(FamilyId id, EventId event) const {
  EventExplanation explanation{event, untilText(program_.at(event)), {}};
  for (BufferId b : program_.at(id).reads) {
    if (!b) continue;
    const FamilyId writer = findWriter(b, program_.at(id).entry);
    if (!writer || program_.at(writer).entry != program_.at(id).entry) continue;
    for (uint32_t p = 0; p < program_.families.size(); ++p) {
      if (!contains(program_.families[p].signals, event)) continue;
      if (FamilyId{p} == writer) {
        explanation.why.push_back(fmt::format("'{}'{} writes '{}'", program_.families[p].name,
                                              program_.at(event).remote ? " of any rank" : "",
                                              program_.at(b).name));
      } else if (coverage_[p][writer.value] != Scope::kNone) {
        explanation.why.push_back(fmt::format("'{}' starts after '{}' has written '{}'",
                                              program_.families[p].name, program_.at(writer).name,
                                              program_.at(b).name));
      }
    }
  }
  return explanation;
}

EventExplanation Reasons::ofSignal(FamilyId id, EventId event) const {
  EventExplanation explanation{event, {}, {}};
  for (uint32_t c = 0; c < program_.families.size(); ++c) {
    if (!contains(program_.families[c].waits, event)) continue;
    std::vector<std::string> read;
    for (BufferId b : program_.families[c].reads)
      if (b && contains(program_.at(id).writes, b)) read.push_back(fmt::format("'{}'", program_.at(b).name));
    const std::string& name = program_.families[c].name;
    explanation.why.push_back(read.empty() ? fmt::format("'{}' waits for it", name)
                                           : fmt::format("'{}' reads {}", name, fmt::join(read, " and ")));
  }
  return explanation;
}

std::vector<std::string> Reasons::ofSharing(const std::vector<BufferId>& buffers) const {
  std::vector<std::string> lines;
  for (size_t i = 1; i < buffers.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      BufferId earlier = buffers[j], later = buffers[i];
      if (!overlap(program_.at(earlier), program_.at(later))) continue;
      FamilyId first = findWriter(earlier, {}), second = findWriter(later, {});
      if (!first || !second) continue;
      if (first > second) std::swap(first, second), std::swap(earlier, later);
      const std::string &a = program_.at(earlier).name, &b = program_.at(later).name;
      if (program_.at(first).entry != program_.at(second).entry) {
        lines.push_back(fmt::format("'{}' and '{}' are of different entries", a, b));
      } else {
        lines.push_back(
            fmt::format("'{}' writes '{}' after the last use of '{}'", program_.at(second).name, b, a));
      }
    }
  return lines;
}

int64_t ceilDivide(int64_t length, int64_t part) { return (length + part - 1) / part; }

// Slots of rows or of groups.
int64_t rowSlots(const TaskProgram& program, SpaceKind kind) {
  const Space* space = findSpace(program, kind);
  const int64_t slotRows = space != nullptr ? space->slotSize : 1;
  const int64_t rows = balancedExtent(program, Extent::kRows), experts = program.maxExperts();
  return experts * ceilDivide(ceilDivide(rows, experts), slotRows);
}

int64_t liveSlots(const TaskProgram& program, const Space& space) {
  if (isRemote(space.kind)) return rowSlots(program, SpaceKind::kRows) * program.mesh.sources();
  if (space.kind == SpaceKind::kOnce) return 1;
  if (space.kind == SpaceKind::kExperts) return program.maxExperts();
  if (space.kind == SpaceKind::kTokens) return ceilDivide(program.maxTokens, space.slotSize);
  return rowSlots(program, space.kind);
}

FamilyWork countWork(const TaskProgram& program, const Family& family) {
  FamilyWork work;
  for (BufferId b : family.reads)
    if (b) work.read += sizeFormula(program.at(b));
  for (BufferId b : family.writes)
    if (b) work.written += sizeFormula(program.at(b));
  const OpInfo& op = findInfo(family.op);
  if (op.domain == Domain::kSends) {
    // Rows are told by pairs here, and by rows where they arrive.
    work.read = {0, 0, 0, work.read.tokens};
    if (const BufferId id = findBuffer(family, &Operands::weights)) {
      const int64_t weights = bytesPerUnit(program.at(id));
      work.read.pairs += weights / program.topK - weights;
    }
    work.written = {0, 0, 0, work.written.rows};
  } else if (op.domain == Domain::kReturns) {
    work.written = {0, 0, work.written.pairs, 0};
  } else if (accumulates(family)) {
    work.read += work.written;
  }
  const Extent extent = op.vector == VectorWork::kWeightedSum           ? Extent::kPairs
                        : findInfo(program.at(family.space).kind).dense ? Extent::kTokens
                                                                        : Extent::kRows;
  work.flops.at(extent) = productFlops(family.op, family.tiling) + vectorFlops(family);
  return work;
}

// The number of tasks of a family in a balanced step: a rank with the most experts and max_tokens tokens
// receives as many rows as it sends, and all experts get equally many.
int64_t tasksInBalancedStep(const TaskProgram& program, const Family& family) {
  return liveSlots(program, program.at(family.space)) * family.tiles;
}

// The priority of the lane that holds the family.
void addLane(const TaskProgram& program, FamilyId family, FamilyExplanation& explanation) {
  for (const Lane& lane : program.lanes) {
    int64_t tasks = 0;
    int32_t busy = 0;
    for (const std::vector<TaskRecord>& seat : lane.seats) {
      int64_t own = 0;
      for (const TaskRecord& record : seat) own += record.family == family ? 1 : 0;
      tasks += own;
      busy += own > 0 ? 1 : 0;
    }
    if (tasks == 0) continue;
    explanation.tasksInWindow = tasks;
    explanation.busyCores = busy;
    explanation.cores = static_cast<int32_t>(lane.seats.size());
    explanation.firstCore = lane.firstCore;
    explanation.priority = lane.priority;
    return;
  }
}

}  // namespace

Explanation explain(const VerifiedProgram& verified, moe::GraphOp graph,
                    const std::vector<Decision>& decisions) {
  const TaskProgram& program = *verified;
  const Reasons reasons(program, graph, decisions);
  Explanation explanation;
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const FamilyId id{f};
    FamilyExplanation family;
    family.family = id;
    family.tasksInStep = tasksInBalancedStep(program, program.families[f]);
    family.order = verified.order()[f];
    addLane(program, id, family);
    family.why = reasons.ofFamily(id);
    for (EventId event : program.families[f].waits) family.waits.push_back(reasons.ofWait(id, event));
    for (EventId event : program.families[f].signals) family.signals.push_back(reasons.ofSignal(id, event));
    family.work = countWork(program, program.families[f]);
    explanation.families.push_back(std::move(family));
  }
  explanation.memory = reportMemory(program);
  for (const RegionReport& region : explanation.memory.regions)
    explanation.sharing.push_back(reasons.ofSharing(region.buffers));
  for (const Decision& decision : decisions)
    if (decision.node.empty()) explanation.decisions.push_back(decision);
  return explanation;
}

}  // namespace sluice
