#include "runtime/gpu/cuda/cuda_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/base/clock.h"

namespace sluice {
namespace {

constexpr size_t kAlignment = 128;  // of each table, as tensor maps need
// How often the host looks whether a launch has ended: as rarely as costs little against a step.
constexpr std::chrono::microseconds kBetweenLooks{20};
// How often it looks whether lists have gone on.
constexpr std::chrono::seconds kBetweenHeads{1};

Status toStatus(cuda::Failure failure, const char* what) {
  if (failure == nullptr) return {};
  return Error{fmt::format("CUDA: {}: {}", what, failure)};
}

// What is copied to the device in one piece, and where its parts begin.
class Arena {
 public:
  template <class T>
  size_t add(const std::vector<T>& values) {
    const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(begin + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + begin, values.data(), values.size() * sizeof(T));
    return begin;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Where the tables of a rank lie.
struct Places {
  size_t matrices, tasks, products, weightGrads, rowCopies, rowWorks, lists, counters, heads, reports;
};

Places placeTables(const StepTables& tables, int blocks, Arena& arena) {
  return {.matrices = arena.add(tables.matrices),
          .tasks = arena.add(tables.records),
          .products = arena.add(tables.products),
          .weightGrads = arena.add(tables.weightGrads),
          .rowCopies = arena.add(tables.rowCopies),
          .rowWorks = arena.add(tables.rowWorks),
          .lists = arena.add(tables.lists),
          .counters = arena.add(tables.counters),
          .heads = arena.add(tables.lists),
          .reports = arena.add(std::vector<gpu::StuckReport>(static_cast<size_t>(blocks * gpu::kRoles)))};
}

template <class T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

gpu::Chain makeChain(const StepTables& tables, const Places& places, std::byte* base, uint64_t* abort,
                     double timeoutSeconds) {
  return {.matrices = at<gpu::Matrix>(base, places.matrices),
          .tasks = at<gpu::ChainTask>(base, places.tasks),
          .products = at<gpu::Product>(base, places.products),
          .weightGrads = at<gpu::WeightGrad>(base, places.weightGrads),
          .rowCopies = at<gpu::RowCopy>(base, places.rowCopies),
          .rowWorks = at<gpu::RowWork>(base, places.rowWorks),
          .lists = at<uint32_t>(base, places.lists),
          .cores = tables.cores,
          .lanes = {tables.lanes[0], tables.lanes[1]},
          .counters = at<uint64_t*>(base, places.counters),
          .rank = tables.rank,
          .abort = abort,
          .heads = at<uint32_t>(base, places.heads),
          .reports = at<gpu::StuckReport>(base, places.reports),
          .limit = static_cast<uint64_t>(limitNanoseconds(timeoutSeconds))};
}

// Whether a kernel still does something: whether the heads of its lists move.
class ProgressWatch {
 public:
  ProgressWatch(std::span<const MemoryRange> heads, void* stream) : heads_(heads), stream_(stream) {}

  // For how long no head has moved, as far as looks tell.
  Expected<std::chrono::steady_clock::duration> idleFor() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kBetweenHeads) return looked_ - moved_;
    std::vector<std::byte> found;
    for (const MemoryRange& range : heads_) {
      const size_t begin = found.size();
      found.resize(begin + range.bytes);
      if (Status ok = toStatus(
              cuda::copyOut(&found[begin], static_cast<const std::byte*>(range.data), range.bytes, stream_),
              "looking at a running kernel");
          !ok)
        return ok.error();
    }
    looked_ = now;
    if (found != seen_) moved_ = now;
    seen_ = std::move(found);
    return looked_ - moved_;
  }

 private:
  const std::span<const MemoryRange> heads_;
  void* const stream_;
  std::vector<std::byte> seen_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now(), moved_ = looked_;
};

}  // namespace

Expected<std::shared_ptr<CudaGroup>> CudaGroup::make(int device, int blocks, int ranks) {
  std::shared_ptr<CudaGroup> group(new CudaGroup(device, blocks, ranks));
  Status ok = toStatus(cuda::choose(device), "choosing the device");
  for (void** const stream : {&group->stream_, &group->aside_})
    if (ok) ok = toStatus(cuda::makeStream(stream), "making a stream");
  for (void** const event : {&group->begun_, &group->ended_})
    if (ok) ok = toStatus(cuda::makeEvent(event), "making an event");
  void* one = nullptr;
  if (ok) ok = toStatus(cuda::allocateShared(&one, sizeof(uint64_t)), "reserving memory of the host");
  if (!ok) return ok.error();
  group->one_ = static_cast<uint64_t*>(one);
  *group->one_ = 1;
  return group;
}

CudaGroup::~CudaGroup() {
  if (one_ != nullptr) cuda::releaseShared(one_);
  for (void* const event : {begun_, ended_})
    if (event != nullptr) cuda::endEvent(event);
  for (void* const stream : {stream_, aside_})
    if (stream != nullptr) cuda::endStream(stream);
}

Expected<DeviceMemory> CudaGroup::reserve(size_t bytes, bool zeroed) {
  if (bytes == 0) return DeviceMemory{};
  void* data = nullptr;
  cuda::Failure failure = cuda::choose(device_);
  if (failure == nullptr) failure = cuda::allocate(&data, bytes);
  if (failure != nullptr) {
    cuda::DeviceInfo info{};
    const bool known = cuda::describe(device_, &info) == nullptr;
    return Error{fmt::format("CUDA: {} for {} bytes of cuda:{}, of whose {} bytes {} are free", failure,
                             bytes, device_, known ? info.bytes : 0, known ? info.freeBytes : 0)};
  }
  DeviceMemory memory{
      static_cast<std::byte*>(data), bytes,
      std::shared_ptr<const void>(data, [](const void* held) { cuda::release(const_cast<void*>(held)); })};
  if (zeroed)
    if (Status ok = toStatus(cuda::zero(data, bytes, aside_), "zeroing memory"); !ok) return ok.error();
  return memory;
}

Expected<SymmetricMemory> CudaGroup::allocate(int rank, size_t bytes) {
  auto memory = reserve(std::max<size_t>(bytes, 1), true);
  if (!memory) return memory.error();
  std::lock_guard lock(mutex_);
  auto& own = symmetric_[static_cast<size_t>(rank)];
  own.push_back(*memory);
  return SymmetricMemory{{static_cast<uint32_t>(own.size() - 1)}, memory->data, bytes};
}

std::byte* CudaGroup::symmetric(int rank, SymmetricHandle handle) {
  std::lock_guard lock(mutex_);
  return symmetric_[static_cast<size_t>(rank)][handle.index].data;
}

Expected<StepOutcome> CudaGroup::run(const StepTables& tables, Transport& transport, double timeoutSeconds) {
  return partitions_.run(tables, transport, [&](auto all) { return launch(all, transport, timeoutSeconds); });
}

Expected<std::vector<StepOutcome>> CudaGroup::launch(std::span<const StepTables* const> tables,
                                                     Transport& transport, double timeoutSeconds) {
  Arena arena;
  const size_t abortAt = arena.add(std::vector<uint64_t>{0});
  std::vector<Places> places;
  for (const StepTables* const each : tables) places.push_back(placeTables(*each, blocks_, arena));
  const size_t bytes = arena.bytes().size();
  if (arena_.bytes < bytes) {
    arena_ = {};
    auto grown = reserve(bytes + bytes / 2, false);
    if (!grown) return grown.error();
    arena_ = *grown;
  }
  Status ok = toStatus(cuda::choose(device_), "choosing the device");
  if (ok) ok = toStatus(cuda::copyIn(arena_.data, arena.bytes().data(), bytes, stream_), "copying tables");
  if (!ok) return ok.error();

  gpu::Launch launch{.partitions = ranks()};
  for (size_t rank = 0; rank < tables.size(); ++rank)
    launch.chains[rank] = makeChain(*tables[rank], places[rank], arena_.data,
                                    at<uint64_t>(arena_.data, abortAt), timeoutSeconds);
  const std::optional<ActivationKind> activation = tables.front()->activation;  // all ranks have one program
  ok = toStatus(cuda::record(begun_, stream_), "timing the kernel");
  if (ok)
    ok = toStatus(gpu::launchChain(launch, activation ? &*activation : nullptr, blocks_ * ranks(), stream_),
                  "launching the kernel");
  if (ok) ok = toStatus(cuda::record(ended_, stream_), "timing the kernel");
  std::vector<MemoryRange> heads;
  for (size_t rank = 0; rank < tables.size(); ++rank)
    heads.push_back({arena_.data + places[rank].heads, tables[rank]->lists.size() * sizeof(uint32_t)});
  if (ok) ok = awaitEnd(transport, arena_.data + abortAt, heads, timeoutSeconds);
  double seconds = 0;
  if (ok) ok = toStatus(cuda::secondsBetween(begun_, ended_, &seconds), "timing the kernel");
  if (!ok) return ok.error();

  std::vector<StepOutcome> outcomes(tables.size(), StepOutcome{.seconds = seconds});
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    StepOutcome& outcome = outcomes[rank];
    outcome.heads.resize(tables[rank]->lists.size());
    outcome.reports.resize(static_cast<size_t>(blocks_ * gpu::kRoles));
    ok = toStatus(cuda::copyOut(outcome.heads.data(), arena_.data + places[rank].heads,
                                outcome.heads.size() * sizeof(uint32_t), stream_),
                  "copying heads");
    if (ok)
      ok = toStatus(cuda::copyOut(outcome.reports.data(), arena_.data + places[rank].reports,
                                  outcome.reports.size() * sizeof(gpu::StuckReport), stream_),
                    "copying reports");
    if (!ok) return ok.error();
  }
  return outcomes;
}

// An abort by the transport ends the kernel, too. All waits of a kernel end by themselves; one that does
// nothing for three times as long has left what its source says.
Status CudaGroup::awaitEnd(Transport& transport, std::byte* abortWord, std::span<const MemoryRange> heads,
                           double timeoutSeconds) {
  const std::chrono::duration<double> limit(3 * timeoutSeconds + 10);
  ProgressWatch watch(heads, aside_);
  bool isTold = false;
  for (bool idle = false; !idle;) {
    if (Status ok = toStatus(cuda::isIdle(stream_, &idle), "running the kernel"); !ok) return ok;
    if (idle) break;
    if (!isTold && transport.isAborted()) {
      if (Status ok = toStatus(cuda::copyIn(abortWord, one_, sizeof(*one_), aside_), "ending the kernel");
          !ok)
        return ok;
      isTold = true;
    }
    const auto idleFor = watch.idleFor();
    if (!idleFor) return idleFor.error();
    if (*idleFor > limit)
      return Error{
          fmt::format("the kernel on cuda:{} does not end, and no task of it ended for {:.0f} s: this "
                      "process cannot use the GPU any more",
                      device_, limit.count())};
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return {};
}

}  // namespace sluice
