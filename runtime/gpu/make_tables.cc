// Makes StepTables: the matrices, and the lists of what each core has to do, what it waits for and what it
// signals.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/abi/gpu/matrix.h"
#include "runtime/exec/step.h"
#include "runtime/gpu/gpu_backend.h"
#include "runtime/gpu/translator.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

constexpr int64_t kWhole = -1;

class Lists {
 public:
  Lists(const Step& step, const Staging& staged, GpuBackend& backend, StepTables& tables)
      : step_(step), tables_(tables), translator_(step, staged, backend, tables) {}

  // The tasks of a lane's core; null: the core has none.
  void add(LaneCursor* cursor) {
    tables_.lists.push_back(static_cast<uint32_t>(tables_.records.size()));
    tables_.cursors.push_back(cursor == nullptr ? LaneCursor(LaneId{}, 0, nullptr) : *cursor);
    if (cursor == nullptr) return;
    cursor->start(step_);
    for (; !cursor->done(); cursor->next(step_)) addTask(cursor->task());
    tables_.cursors.back().start(step_);  // and the progress that reports look at
  }

  const Status& status() const { return translator_.status(); }

 private:
  void addTask(const Task& task) {
    const size_t first = tables_.records.size();
    translator_.add(task);
    tables_.isFirst.resize(tables_.records.size());
    tables_.isFirst[first] = 1;
    ++tables_.tasks;
    const SpaceKind space = step_.plan->at(task.family).space;
    tables_.records[first].segment =
        static_cast<uint32_t>(step_.plan->verified().order()[task.family.value].segment);
    size_t i = 0;
    for (const EventId wait : step_.program().at(task.family).waits) {
      const int64_t index = eventIndex(*step_.tables, space, task.slot, step_.program().at(wait).space);
      tables_.records[first].waits[i++] = {cacheLineAt(step_.events->word(wait, index)),
                                           static_cast<uint32_t>(step_.events->need(wait, index))};
    }
    i = 0;
    forSignals(step_, task, [&](int rank, size_t word, uint64_t n) {
      tables_.records.back().signals[i++] = {cacheLineAt(word), static_cast<uint32_t>(n), rank};
    });
  }

  static uint32_t cacheLineAt(size_t word) { return static_cast<uint32_t>(word / kCacheLine); }

  const Step& step_;
  StepTables& tables_;
  Translator translator_;
};

// By role, lanes of the entry by priority.
std::vector<size_t> listLanes(const Step& step, bool remote) {
  std::vector<size_t> found;
  const std::vector<LaneId>& lanes = step.plan->at(step.entry).lanes;
  for (size_t i = 0; i < lanes.size(); ++i)
    if (isRemote(step.program().at(step.program().at(lanes[i]).space).kind) == remote) found.push_back(i);
  return found;
}

// The activation of all families that have one; none: they have several.
std::optional<ActivationKind> findSharedActivation(const TaskProgram& program) {
  std::optional<ActivationKind> found;
  for (const Family& family : program.families) {
    const VectorWork work = findInfo(family.op).vector;
    if (work != VectorWork::kActivation && work != VectorWork::kActivationGrad) continue;
    if (found && *found != family.tiling.activation) return {};
    found = family.tiling.activation;
  }
  return found.value_or(ActivationKind::kSwiglu);
}

void addMemory(const Step& step, const Staging& staged, GpuBackend& backend, StepTables& tables) {
  const auto addRange = [&tables](const void* data, size_t bytes) { tables.memory.push_back({data, bytes}); };
  const SymmetricMemory& words = step.events->words();
  for (int rank = 0; rank < step.program().mesh.peers(); ++rank) {
    std::byte* const peer = rank == step.rank ? words.data : backend.peer(rank, words.handle);
    tables.counters.push_back(reinterpret_cast<uint64_t*>(peer));
    if (rank == step.rank) addRange(peer, words.bytes);
  }
  for (const FamilyId id : step.plan->at(step.entry).families)
    for (const auto* operands : {&step.program().at(id).reads, &step.program().at(id).writes})
      for (const BufferId buffer : *operands) {
        if (!buffer) continue;
        const BufferAddress& address = step.at(buffer);
        const int64_t length = measureLength(step, buffer);
        if (length == 0) continue;
        const int64_t last = (length - 1) * address.stride;
        addRange(address.data, static_cast<size_t>(last + rowBytes(step.program().at(buffer))));
      }
  addRange(staged.pairOf(), step.tables->pairOf.size() * sizeof(int32_t));
  addRange(staged.positionOf(), step.tables->positionOf.size() * sizeof(int32_t));
}

}  // namespace

uint16_t MatrixTable::add(BufferId buffer, int boxRows) { return addAs(buffer, boxRows, kWhole, 0); }

uint16_t MatrixTable::add(BufferId buffer, const RowRange& rows) {
  // a map needs a row, which is not read
  return addAs(buffer, 64, rows.begin, std::max(rows.rows, 1));
}

uint16_t MatrixTable::addAs(BufferId buffer, int boxRows, int64_t begin, int64_t rows) {
  const auto [known, isNew] =
      known_.try_emplace({buffer.value, boxRows, begin, rows}, static_cast<uint16_t>(matrices_.size()));
  if (!isNew) return known->second;
  if (matrices_.size() == gpu::kNoMatrix) {
    status_ = Error{fmt::format("a step has more than {} matrices", gpu::kNoMatrix)};
    known->second = 0;
    return 0;
  }

  const Buffer& described = step_.program().at(buffer);
  const BufferAddress& address = step_.at(buffer);
  const auto& shape = described.shape;
  const int64_t length = measureLength(step_, buffer);
  gpu::MappedMatrix matrix;
  matrix.data = address.data;
  matrix.elementBytes = static_cast<int>(dtypeBytes(described.type));
  matrix.columns = shape.back().size;
  matrix.boxRows = boxRows;
  if (shape.size() == 3) {
    matrix.outers = length;
    matrix.rows = shape[1].size;
    matrix.rowPitch = matrix.columns * matrix.elementBytes;
    matrix.outerPitch = address.stride;
  } else {
    matrix.rows = length;
    matrix.rowPitch = address.stride;
    if (begin != kWhole) {
      matrix.data += begin * address.stride;
      matrix.rows = rows;
    }
    matrix.outerPitch = matrix.rows * matrix.rowPitch;
  }

  matrices_.push_back(gpu::makeMatrix(matrix, [this](const gpu::MappedMatrix& mapped) {
    gpu::TensorMap map{};
    if (Status made = backend_.makeMap(mapped, map); !made) status_ = made;
    return map;
  }));
  return known->second;
}

Expected<StepTables> makeTables(const Step& step, const Staging& staged, GpuBackend& backend,
                                LaneProgress& progress) {
  StepTables tables;
  tables.rank = step.rank;
  tables.cores = countCores(step.program());
  tables.activation = findSharedActivation(step.program());
  const std::vector<size_t> lanes[gpu::kRoles] = {listLanes(step, false), listLanes(step, true)};
  for (int role = 0; role < gpu::kRoles; ++role) tables.lanes[role] = static_cast<int>(lanes[role].size());
  Lists lists(step, staged, backend, tables);
  for (int core = 0; core < tables.cores; ++core) {
    LaneCursors cursors = makeCursors(*step.plan, step.entry, core, tables.cores, progress);
    for (const auto& ofRole : lanes)
      for (const size_t lane : ofRole) lists.add(cursors[lane].empty() ? nullptr : &cursors[lane].front());
  }
  tables.lists.push_back(static_cast<uint32_t>(tables.records.size()));
  if (!lists.status()) return lists.status().error();
  addMemory(step, staged, backend, tables);
  return tables;
}

}  // namespace sluice
