#include "tests/runtime/gpu/model_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "ops/gpu/model/launch.h"
#include "runtime/base/clock.h"
#include "runtime/comm/reservation.h"
#include "tests/gpu/chain_kernel.h"

namespace sluice {
namespace {

class ModelMark final : public StreamMark {
 public:
  explicit ModelMark(void* stream) : name(std::to_string(reinterpret_cast<uintptr_t>(stream))) {}
  const std::string name;
};

class ModelBackend final : public GpuBackend {
 public:
  ModelBackend(ModelGroup& group, Transport& transport) : group_(group), transport_(transport) {}

  int blocks() const override { return group_.options().blocks; }
  int tileColumns() const override { return group_.options().columns; }

  Expected<DeviceMemory> reserve(size_t bytes) override {
    auto made = Reservation::reserve(bytes);
    if (!made) return made.error();
    const auto memory = std::make_shared<const Reservation>(std::move(*made));
    own_.push_back({{}, memory->data(), bytes});
    return DeviceMemory{memory->data(), memory->size(), memory};
  }
  Expected<SymmetricMemory> allocate(size_t bytes) override {
    const auto handle = transport_.allocate(bytes);
    if (!handle) return handle.error();
    own_.push_back({*handle, transport_.local(*handle), bytes});
    return own_.back();
  }

  std::byte* peer(int rank, SymmetricHandle handle) override {
    return rank == transport_.rank() ? transport_.local(handle) : transport_.direct(rank, handle);
  }

  bool reaches(const void* data) const override { return !group_.options().hasOwnMemory || isOwn(data); }
  bool isOnHost(const void* data) const override { return !group_.options().hasOwnMemory || !isOwn(data); }
  Status copyIn(std::byte* to, const void* from, size_t bytes) override {
    ++group_.copiesIn;
    return copy(to, from, bytes);
  }
  Status copyOut(void* to, const std::byte* from, size_t bytes) override {
    if (group_.options().isLogging) group_.log.push_back("copy out " + std::to_string(bytes));
    return copy(to, from, bytes);
  }
  Status zero(std::byte* data, size_t bytes) override {
    std::memset(data, 0, bytes);
    return {};
  }

  Expected<std::shared_ptr<StreamMark>> mark(void* stream) override {
    const bool* const isCaptured = group_.options().isCaptured;
    if (isCaptured != nullptr && *isCaptured) return Error{"the stream is being captured"};
    auto mark = std::make_shared<ModelMark>(stream);
    group_.log.push_back("mark " + mark->name);
    return std::shared_ptr<StreamMark>(std::move(mark));
  }
  Status follow(StreamMark& mark) override {
    group_.log.push_back("follow " + static_cast<ModelMark&>(mark).name);
    return {};
  }
  Status settle() override {
    group_.log.push_back("settle");
    if (group_.options().stream) group_.options().stream();
    return {};
  }
  Status precede(StreamMark& mark) override {
    group_.log.push_back("precede " + static_cast<ModelMark&>(mark).name);
    return {};
  }

  Status makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap& map) const override {
    map = gpu::model::makeMap(matrix);
    return {};
  }

  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    if (group_.options().isLogging) group_.log.push_back("launch");
    return group_.run(tables, transport, timeoutSeconds);
  }

 private:
  bool isOwn(const void* data) const {
    const auto* const at = static_cast<const std::byte*>(data);
    return std::ranges::any_of(
        own_, [at](const SymmetricMemory& each) { return at >= each.data && at < each.data + each.bytes; });
  }
  static Status copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }

  ModelGroup& group_;
  Transport& transport_;
  std::vector<SymmetricMemory> own_;  // all that reserve() and allocate() gave
};

template <class T>
void registerVector(const std::vector<T>& values) {
  gpu::model::registerGlobal(values.data(), values.size() * sizeof(T));
}

// Tensors may share memory: what overlaps is registered as one.
void registerMemory(std::span<const StepTables* const> all) {
  std::vector<MemoryRange> ranges;
  for (const StepTables* const tables : all)
    ranges.insert(ranges.end(), tables->memory.begin(), tables->memory.end());
  std::ranges::sort(ranges, std::less(), &MemoryRange::data);
  const auto findEnd = [](const MemoryRange& range) {
    return static_cast<const std::byte*>(range.data) + range.bytes;
  };
  for (size_t i = 0; i < ranges.size();) {
    const auto* const begin = static_cast<const std::byte*>(ranges[i].data);
    const std::byte* end = findEnd(ranges[i++]);
    for (; i < ranges.size() && ranges[i].data < end; ++i) end = std::max(end, findEnd(ranges[i]));
    gpu::model::registerGlobal(begin, static_cast<size_t>(end - begin));
  }
}

}  // namespace

BackendMaker ModelGroup::backends() {
  return [this](Transport& transport) -> Expected<std::unique_ptr<GpuBackend>> {
    return std::unique_ptr<GpuBackend>(new ModelBackend(*this, transport));
  };
}

Expected<StepOutcome> ModelGroup::run(const StepTables& tables, Transport& transport, double timeoutSeconds) {
  return partitions_.run(tables, transport, [&](auto all) { return launch(all, timeoutSeconds); });
}

Expected<std::vector<StepOutcome>> ModelGroup::launch(std::span<const StepTables* const> all,
                                                      double timeoutSeconds) {
  constexpr double kMaxSeconds = 0.05;  // of the model's clock
  const auto limit = static_cast<uint64_t>(limitNanoseconds(std::min(timeoutSeconds, kMaxSeconds)));
  const int ranks = partitions_.ranks();
  gpu::Launch launch{.partitions = ranks};
  std::vector<StepOutcome> outcomes(all.size());
  uint64_t abort = 0;
  gpu::model::registerGlobal(&abort, sizeof(abort));
  registerMemory(all);
  for (int rank = 0; rank < ranks; ++rank) {
    const StepTables& tables = *all[static_cast<size_t>(rank)];
    StepOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    outcome.heads = tables.lists;
    outcome.reports.assign(static_cast<size_t>(options_.blocks * gpu::kRoles), {});
    registerVector(tables.matrices);
    registerVector(tables.records);
    registerVector(tables.products);
    registerVector(tables.weightGrads);
    registerVector(tables.rowCopies);
    registerVector(tables.rowWorks);
    registerVector(tables.lists);
    registerVector(tables.counters);
    registerVector(outcome.heads);
    registerVector(outcome.reports);
    launch.chains[rank] = {.matrices = tables.matrices.data(),
                           .tasks = tables.records.data(),
                           .products = tables.products.data(),
                           .weightGrads = tables.weightGrads.data(),
                           .rowCopies = tables.rowCopies.data(),
                           .rowWorks = tables.rowWorks.data(),
                           .lists = tables.lists.data(),
                           .cores = tables.cores,
                           .lanes = {tables.lanes[0], tables.lanes[1]},
                           .counters = tables.counters.data(),
                           .rank = tables.rank,
                           .abort = &abort,
                           .heads = outcome.heads.data(),
                           .reports = outcome.reports.data(),
                           .limit = limit};
  }
  const std::string wrong = gpu::runChainKernel(
      {.blocks = ranks * options_.blocks, .seed = options_.seed + launches_++}, options_.columns, launch);
  if (!wrong.empty()) return Error{"the model: " + wrong};
  return outcomes;
}

}  // namespace sluice
