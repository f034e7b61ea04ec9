#include "compiler/analysis/in_place.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/analysis/events.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

class Rewriter {
 public:
  explicit Rewriter(TaskProgram program) : program_(std::move(program)) {}

  TaskProgram run() {
    std::vector<Family> moving;  // as they are before any change
    for (const Family& family : program_.families)
      if (family.op == OpKind::kCombineReturn || family.op == OpKind::kDispatch) moving.push_back(family);
    for (const Family& family : moving) attempt(family);
    dropUnused();
    return std::move(program_);
  }

 private:
  // Tasks wait for few events, and signal few, so that some rows must be copied after all.
  void attempt(const Family& moving) {
    TaskProgram before = program_;
    const auto place = std::ranges::find_if(program_.families, [&](const Family& family) {
      return family.entry == moving.entry && family.name == moving.name;
    });
    if (moving.op == OpKind::kDispatch)
      gatherInPlace(place);
    else
      sumInPlace(*place);
    std::erase_if(program_.families, [](const Family& family) { return family.writes.empty(); });
    if (!insertEvents(program_)) program_ = std::move(before);
  }

  static void replace(std::vector<BufferId>& operands, BufferId from, BufferId to) {
    if (from) std::ranges::replace(operands, from, to);
  }

  // What read the rows that return reads those that were to return.
  void sumInPlace(Family& back) {
    for (Family& family : program_.families)
      if (family.entry == back.entry)
        for (size_t i = 0; i < back.writes.size(); ++i)
          replace(family.reads, back.writes[i], bufferAt(back.reads, i));
    back.writes.clear();
  }

  bool canGather(const Family& family, const OperandInfo& operand) const {
    return operand.inPlace == Extent::kTokens && !findInfo(program_.at(family.space).kind).dense &&
           !roundsFactors(family.tiling);
  }

  // Whether all families that read the rows can gather them.
  bool canGather(BufferId rows) const {
    return std::ranges::all_of(program_.families, [&](const Family& family) {
      for (size_t i = 0; i < family.reads.size(); ++i)
        if (family.reads[i] == rows && !canGather(family, findInfo(family.op).reads[i])) return false;
      return true;
    });
  }

  // Whether the caller gives the tensor to that entry.
  bool isGivenTo(EntryId entry, BufferId tensor) const {
    return program_.at(tensor).role == Role::kInput &&
           std::ranges::any_of(program_.families, [&](const Family& family) {
             return family.entry == entry && std::ranges::find(family.reads, tensor) != family.reads.end();
           });
  }

  // Those that read the rows of the dispatch read its tokens instead, which are kept for later entries that
  // are not given them.
  void gatherInPlace(std::vector<Family>::iterator dispatch) {
    const Operands ids = findOperands(*dispatch);
    const BufferId tokens = ids.tokens, rows = ids.rows;
    if (!rows || program_.at(rows).type != DType::kBF16 || program_.at(rows).role == Role::kOutput) return;
    if (ids.rowScales || !canGather(rows)) return;
    bool isKept = false;
    for (Family& family : program_.families) {
      if (std::ranges::find(family.reads, rows) == family.reads.end()) continue;
      if (family.entry == dispatch->entry || isGivenTo(family.entry, tokens))
        replace(family.reads, rows, tokens);
      else
        isKept = true;
    }
    operandBuffer(*dispatch, &Operands::tokens) = operandBuffer(*dispatch, &Operands::rows) = BufferId{};
    trimOperands(*dispatch);
    if (!isKept) return;
    program_.buffers[rows.value].shape.front() = {Extent::kTokens, 0};
    Family keep = *dispatch;
    keep.name += ".keep";
    keep.op = OpKind::kScale;
    keep.space = findSpaceId(SpaceKind::kTokens);
    keep.reads = {tokens};
    keep.writes = {rows};
    program_.families.insert(dispatch, std::move(keep));
  }

  SpaceId findSpaceId(SpaceKind kind) const {
    return SpaceId{static_cast<uint32_t>(findSpace(program_, kind) - program_.spaces.data())};
  }

  // Removes buffers of the runtime that no family has any more.
  void dropUnused() {
    std::vector<bool> isUsed(program_.buffers.size());
    for (const Family& family : program_.families)
      for (const std::vector<BufferId>* ids : {&family.reads, &family.writes})
        for (const BufferId id : *ids)
          if (id) isUsed[id.value] = true;
    std::vector<BufferId> now(program_.buffers.size());
    std::vector<Buffer> kept;
    for (size_t b = 0; b < isUsed.size(); ++b) {
      const Role role = program_.buffers[b].role;
      if (!isUsed[b] && (role == Role::kTemp || role == Role::kSaved)) continue;
      now[b] = BufferId{static_cast<uint32_t>(kept.size())};
      kept.push_back(std::move(program_.buffers[b]));
    }
    program_.buffers = std::move(kept);
    const auto move = [&](BufferId& id) {
      if (id) id = now[id.value];
    };
    for (Family& family : program_.families) {
      std::ranges::for_each(family.reads, move);
      std::ranges::for_each(family.writes, move);
    }
    for (Entry& entry : program_.entries) {
      move(entry.expertIds);
      move(entry.placement);
    }
  }

  TaskProgram program_;
};

}  // namespace

bool readsInPlace(const TaskProgram& program) {
  return program.mesh.peers() == 1 && std::ranges::none_of(program.families, [&](const Family& family) {
           return family.op == OpKind::kDispatch && findBuffer(family, &Operands::rows) &&
                  program.at(family.entry).routes();
         });
}

TaskProgram readInPlace(TaskProgram program) {
  if (program.mesh.peers() > 1) return program;
  return Rewriter(std::move(program)).run();
}

}  // namespace sluice
