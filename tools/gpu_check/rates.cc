// How long parts of the kernel take, and steps of it beside what they replaced (ops/gpu/timed_probes.h).
//
// A rate of the kernel is measured with tasks of one kind on every core, for a short and a long sum, and for
// a number of tasks and twice that. The differences are what a stage costs, and what a task costs besides its
// stages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include "runtime/abi/gpu/matrix.h"
#include "runtime/base/clock.h"
#include "tools/gpu_check/ladder.h"

namespace sluice::tools {
namespace {

using gpu::GradForm;
using gpu::kStoredRows;
using gpu::kTileRows;
using gpu::Major;
using gpu::ProductKind;

constexpr int kDepth = 64;    // of a sum, in a stage
constexpr int kSlots = 12;    // 132 tiles are so many slots by 11 columns of tiles
constexpr int kLaunches = 3;  // of which the fastest counts

struct RateSizes {
  int shortSum, longSum;
  int tasks;  // of a core
};
constexpr RateSizes kOnGpu{512, 4096, 8}, kOnModel{64, 192, 1};

// What a rate is of.
struct Rate {
  const char* name;
  ProductKind kind = ProductKind::kPlain;
  std::optional<GradForm> grad = {};  // a weight gradient instead
  Major major = Major::kMn;           // of the weight
  bool isGathered = false, isUnmapped = false;
  double expected = 0;  // cycles of a stage, at most; 0: it is slow on purpose
};

// 64 k of a tile of 128 x 256 take the tensor cores 1,024 cycles.
constexpr double kPlainStage = 1400;
constexpr Rate kRates[] = {
    {.name = "weights along k", .major = Major::kK, .expected = kPlainStage},
    {.name = "weights along columns", .expected = kPlainStage},
    {.name = "gathered rows", .isGathered = true, .expected = 1.3 * kPlainStage},
    {.name = "rows without a map", .isUnmapped = true},
    {.name = "activation", .kind = ProductKind::kActivation, .expected = kPlainStage},
    {.name = "activation gradient", .kind = ProductKind::kActivationGrad, .expected = kPlainStage},
    {.name = "weight gradient", .grad = GradForm::kFp32, .expected = kPlainStage},
    {.name = "weight gradient that is added", .grad = GradForm::kFp32Added, .expected = kPlainStage},
    {.name = "weight gradient in bf16", .grad = GradForm::kBf16, .expected = kPlainStage},
    {.name = "weight gradient of gathered rows",
     .grad = GradForm::kFp32,
     .isGathered = true,
     .expected = 1.3 * kPlainStage},
};

// Memory of the device with numbers of bf16 around 1, and tables of tasks on it. A resource.
class RateRun {
 public:
  RateRun(const OneRank& rank, double timeoutSeconds) : rank_(rank), timeoutSeconds_(timeoutSeconds) {}

  const Status& status() const { return status_; }
  GpuBackend& backend() const { return rank_.backend(); }
  int cores() const { return backend().blocks(); }
  int slots() const { return std::min(kSlots, cores()); }
  int tiles() const { return (cores() + slots() - 1) / slots(); }

  // Numbers, which are zeros where they are not bf16 of operands.
  std::byte* memory(size_t bytes, bool isOperand) {
    auto made = backend().reserve(bytes);
    if (!made) {
      status_ = made.error();
      return nullptr;
    }
    held_.push_back(*made);
    ranges_.push_back({made->data, bytes});
    if (!isOperand) {
      keep(backend().zero(made->data, bytes));
      return made->data;
    }
    std::vector<uint16_t> numbers(bytes / 2);
    std::minstd_rand random(7);
    for (uint16_t& each : numbers) each = static_cast<uint16_t>(0x3F00 | (random() >> 8 & 0x80FF));
    keep(backend().copyIn(made->data, numbers.data(), bytes));
    return made->data;
  }

  // Adds a matrix [rows, columns] of bf16 or fp32, with a map if it can have one.
  uint16_t addMatrix(int64_t rows, int64_t columns, int boxRows, int elementBytes = 2, bool isMapped = true) {
    gpu::MappedMatrix matrix{
        .elementBytes = elementBytes, .columns = columns, .rows = rows, .boxRows = boxRows};
    matrix.rowPitch = columns * elementBytes + (isMapped ? 0 : elementBytes);
    matrix.outerPitch = rows * matrix.rowPitch;
    matrix.data = memory(static_cast<size_t>(matrix.outerPitch), elementBytes == 2);
    if (!status_) return 0;
    tables_.matrices.push_back(gpu::makeMatrix(matrix, [this](const gpu::MappedMatrix& described) {
      gpu::TensorMap map{};
      keep(backend().makeMap(described, map));
      return map;
    }));
    return static_cast<uint16_t>(tables_.matrices.size() - 1);
  }

  // Each of so many rows once, in no order that helps.
  const int32_t* addIndex(int rows) {
    std::vector<int32_t> index(static_cast<size_t>(rows));
    std::iota(index.begin(), index.end(), 0);
    std::minstd_rand random(5);
    std::ranges::shuffle(index, random);
    std::byte* const data = memory(index.size() * sizeof(int32_t), false);
    if (status_) keep(backend().copyIn(data, index.data(), index.size() * sizeof(int32_t)));
    return reinterpret_cast<const int32_t*>(data);
  }

  void put(const gpu::Product& work) { tables_.products.push_back(work); }
  void put(const gpu::WeightGrad& work) { tables_.weightGrads.push_back(work); }
  void put(const gpu::RowWork& work) { tables_.rowWorks.push_back(work); }

  // The seconds of a launch in which each of the first `cores` cores has so many tasks, each of them the work
  // with the number of the core. eventsOf(core, i, record) sets their events.
  template <class EventsOf>
  Expected<double> measure(gpu::TaskKind kind, int cores, int tasks, const EventsOf& eventsOf) {
    StepTables tables = tables_;
    for (int core = 0; core < this->cores(); ++core) {
      tables.lists.push_back(static_cast<uint32_t>(tables.records.size()));
      for (int i = 0; i < tasks && core < cores; ++i) {
        gpu::ChainTask record{.kind = kind, .work = static_cast<uint32_t>(core)};
        eventsOf(core, i, record);
        tables.records.push_back(record);
      }
    }
    tables.lists.push_back(static_cast<uint32_t>(tables.records.size()));
    tables.cores = this->cores();
    tables.lanes[0] = 1;
    constexpr size_t kCounterBytes = 2 * gpu::kCounterStride * sizeof(uint64_t);
    std::byte* const counters = memory(kCounterBytes, false);
    tables.counters = {reinterpret_cast<uint64_t*>(counters)};
    tables.memory = ranges_;
    double best = INFINITY;
    for (int launch = 0; launch < kLaunches && status_; ++launch) {
      keep(backend().zero(counters, kCounterBytes));
      const int64_t begin = monotonicNanoseconds();
      const auto outcome = backend().run(tables, rank_.transport(), timeoutSeconds_);
      const double passed = static_cast<double>(monotonicNanoseconds() - begin) * 1e-9;
      if (!outcome) return outcome.error();
      for (const gpu::StuckReport& report : outcome->reports)
        if (report.stuck != gpu::Stuck::kNo)
          return Error{fmt::format("core {}: a wait of task {} did not end within {} s", report.core,
                                   report.task, timeoutSeconds_)};
      best = std::min(best, outcome->seconds > 0 ? outcome->seconds : passed);
    }
    return status_ ? Expected(best) : status_.error();
  }
  Expected<double> measure(gpu::TaskKind kind, int tasks) {
    return measure(kind, cores(), tasks, [](int, int, gpu::ChainTask&) {});
  }
  // The works of the next measurement come first.
  void clear() {
    tables_.products.clear();
    tables_.weightGrads.clear();
  }

 private:
  void keep(const Status& status) {
    if (status_ && !status) status_ = status;
  }

  const OneRank& rank_;
  const double timeoutSeconds_;
  Status status_;
  StepTables tables_;  // without records
  std::vector<DeviceMemory> held_;
  std::vector<MemoryRange> ranges_;
};

// Adds the matrices of a rate, and returns the work of a core by the length of its sum.
std::function<gpu::Product(int core, int sum)> productsOf(RateRun& run, const Rate& rate, int longSum) {
  const int columns = run.backend().tileColumns();
  const int inTile = rate.kind == ProductKind::kActivation ? columns / 2 : columns;
  const int64_t rows = int64_t{kTileRows} * run.slots(), width = int64_t{inTile} * run.tiles();
  const int64_t both = 2 * width;  // of gate and up
  gpu::Product product{.weightMajor = rate.major, .rows = kTileRows, .kind = rate.kind};
  product.a = run.addMatrix(rows, longSum, kTileRows, 2, !rate.isUnmapped);
  const int64_t ofWeight = rate.kind == ProductKind::kActivation ? both : width;
  product.weight = rate.major == Major::kMn ? run.addMatrix(longSum, ofWeight, kDepth)
                                            : run.addMatrix(ofWeight, longSum, columns / 2);
  const bool isGradient = rate.kind == ProductKind::kActivationGrad;
  product.out = run.addMatrix(rows, isGradient ? both : width, kStoredRows);
  if (rate.kind != ProductKind::kPlain) product.gateUp = run.addMatrix(rows, both, kStoredRows);
  if (isGradient) product.weightedAct = run.addMatrix(rows, width, kStoredRows);
  if (rate.isGathered) product.rowIndex = run.addIndex(static_cast<int>(rows));
  return [product, inTile, slots = run.slots()](int core, int sum) {
    gpu::Product work = product;
    work.firstRow = kTileRows * (core % slots);
    work.firstColumn = inTile * (core / slots);
    work.endColumn = work.firstColumn + inTile;
    work.k = sum;
    return work;
  };
}

std::function<gpu::WeightGrad(int core, int sum)> makeWeightGrads(RateRun& run, const Rate& rate,
                                                                  int longSum) {
  const int columns = run.backend().tileColumns();
  const int64_t rows = int64_t{kTileRows} * run.slots(), width = int64_t{columns} * run.tiles();
  const bool isFloat = *rate.grad == GradForm::kFp32 || *rate.grad == GradForm::kFp32Added;
  gpu::WeightGrad grad{.form = *rate.grad};
  grad.a = run.addMatrix(longSum, rows, kDepth);
  grad.dy = run.addMatrix(longSum, width, kDepth);
  grad.out = run.addMatrix(rows, width, kStoredRows, isFloat ? 4 : 2);
  if (rate.isGathered) grad.dyIndex = run.addIndex(longSum);
  return [grad, columns, slots = run.slots()](int core, int sum) {
    gpu::WeightGrad work = grad;
    work.firstRow = kTileRows * (core % slots);
    work.endRow = work.firstRow + kTileRows;
    work.firstColumn = columns * (core / slots);
    work.endColumn = work.firstColumn + columns;
    work.rows = sum;
    return work;
  };
}

struct Measured {
  double stage, task;  // seconds: of a stage, and of a task besides its stages
};

template <class WorkOf>
Expected<Measured> measureSums(RateRun& run, gpu::TaskKind kind, const RateSizes& sizes,
                               const WorkOf& countWork) {
  const auto measure = [&](int sum, int tasks) {
    run.clear();
    for (int core = 0; core < run.cores(); ++core) run.put(countWork(core, sum));
    return run.measure(kind, tasks);
  };
  const auto brief = measure(sizes.shortSum, sizes.tasks);
  if (!brief) return brief.error();
  const auto twice = measure(sizes.shortSum, 2 * sizes.tasks);
  if (!twice) return twice.error();
  const auto extended = measure(sizes.longSum, sizes.tasks);
  if (!extended) return extended.error();
  const int more = (sizes.longSum - sizes.shortSum) / kDepth;
  const double stage = (*extended - *brief) / (sizes.tasks * more);
  return Measured{stage, (*twice - *brief) / sizes.tasks - stage * sizes.shortSum / kDepth};
}

// What a rate needs of its machine.
struct Clocked {
  OneRank rank;
  RateSizes sizes;
  double clock;  // Hz
};
Expected<Clocked> makeClocked(const CheckMachine& machine) {
  const auto facts = machine.facts();
  if (!facts) return facts.error();
  auto rank = OneRank::make(machine, 0);
  if (!rank) return rank.error();
  return Clocked{std::move(*rank), machine.probes.isModel ? kOnModel : kOnGpu, facts->clock};
}

Expected<Finding> measureRate(const CheckMachine& machine, const LadderPlan& plan, const Rate& rate) {
  const auto on = makeClocked(machine);
  if (!on) return on.error();
  RateRun run(on->rank, plan.timeoutSeconds);
  const auto found = rate.grad ? measureSums(run, gpu::TaskKind::kWeightGrad, on->sizes,
                                             makeWeightGrads(run, rate, on->sizes.longSum))
                               : measureSums(run, gpu::TaskKind::kProduct, on->sizes,
                                             productsOf(run, rate, on->sizes.longSum));
  if (!found) return found.error();
  const double stage = found->stage * on->clock, task = found->task * on->clock;
  const std::string expected = rate.expected == 0 ? ""
                               : stage <= rate.expected
                                   ? fmt::format(" (expected at most {:.0f})", rate.expected)
                                   : fmt::format(" (SLOW: expected at most {:.0f})", rate.expected);
  return Finding(fmt::format("{:.0f} cycles per stage{}, {:.0f} per task besides", stage, expected, task),
                 {{"stage_cycles", stage}, {"task_cycles", task}, {"expected_stage_cycles", rate.expected}});
}

// Tasks without work: on each core by themselves, or on two cores of which each waits for the other.
Expected<Finding> measureTurns(const CheckMachine& machine, const LadderPlan& plan, bool areChained) {
  const auto on = makeClocked(machine);
  if (!on) return on.error();
  RateRun run(on->rank, plan.timeoutSeconds);
  const int cores = areChained ? 2 : run.cores();
  if (run.cores() < cores)
    return Error{fmt::format("found {} blocks, expected {} or more", run.cores(), cores)};
  for (int core = 0; core < cores; ++core)
    run.put(gpu::RowWork{.op = gpu::RowOp::kScale, .topK = 1, .parts = 1});
  // task i of core c is number 2 i + c of the chain
  const auto eventsOf = [areChained](int core, int i, gpu::ChainTask& record) {
    if (!areChained) return;
    const auto number = static_cast<uint32_t>(2 * i + core);
    record.waits[0] = {1, number};
    record.signals[0] = {1, 1, 0};
  };
  const int tasks = 16 * on->sizes.tasks;
  const auto once = run.measure(gpu::TaskKind::kRowWork, cores, tasks, eventsOf);
  if (!once) return once.error();
  const auto twice = run.measure(gpu::TaskKind::kRowWork, cores, 2 * tasks, eventsOf);
  if (!twice) return twice.error();
  const double cycles = (*twice - *once) / (tasks * (areChained ? 2 : 1)) * on->clock;
  return Finding(fmt::format("{:.0f} cycles", cycles), {{"cycles", cycles}});
}

// Gathers rows, or fences stores, as kernels do it or as they did it before.
Expected<Finding> timeSteps(const CheckMachine& machine, gpu::Probe probe, bool isBefore) {
  const auto on = makeClocked(machine);
  if (!on) return on.error();
  constexpr int kRows = 4096, kColumns = 64;
  ProbeRun run(on->rank.backend(), machine.probes);
  std::vector<int32_t> index(gpu::kTimedRows);
  std::minstd_rand random(5);
  for (int32_t& row : index) row = static_cast<int32_t>(random() % kRows);
  const auto* const rows =
      reinterpret_cast<const std::byte*>(run.upload(std::vector<uint16_t>(kRows * kColumns)));
  uint64_t* const out = run.upload(std::vector<uint64_t>(1));
  gpu::ProbeLaunch launch{.probe = probe};
  launch.arguments.maps[0] = run.makeMap({.data = rows,
                                          .columns = kColumns,
                                          .rows = kRows,
                                          .rowPitch = 2 * kColumns,
                                          .outerPitch = 2 * kColumns * kRows,
                                          .boxColumns = kColumns,
                                          .boxRows = 1});
  launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(index));
  launch.arguments.data = rows;
  launch.arguments.pitch = 2 * kColumns;
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  launch.arguments.column = isBefore ? 1 : 0;
  double nanoseconds[2];
  const int times = machine.probes.isModel ? 4 : 1000;
  for (const int i : {0, 1}) {
    launch.arguments.number = times << i;
    run.launch(launch);
    nanoseconds[i] = static_cast<double>(run.download(out, 1)[0]);
  }
  if (!run.status()) return run.status().error();
  const double cycles = (nanoseconds[1] - nanoseconds[0]) * 1e-9 / times * on->clock;
  return Finding(fmt::format("{:.0f} cycles", cycles), {{"cycles", cycles}});
}

}  // namespace

std::vector<NamedCheck> rateChecks(const CheckMachine& machine, const LadderPlan& plan) {
  std::vector<NamedCheck> checks;
  for (const Rate& rate : kRates)
    checks.push_back({kRungOfRates, fmt::format("rate of {}", rate.name),
                      [&machine, plan, &rate] { return measureRate(machine, plan, rate); }});
  for (const bool areChained : {false, true})
    checks.push_back({kRungOfRates,
                      areChained ? "from a signal to the end of the next task" : "turn-around of a task",
                      [&machine, plan, areChained] { return measureTurns(machine, plan, areChained); }});
  for (const auto& [probe, isBefore, name] :
       {std::tuple(gpu::Probe::kTimedRows, false, "gather of 128 rows by threads"),
        std::tuple(gpu::Probe::kTimedRows, true, "gather of 128 rows by boxes of one row"),
        std::tuple(gpu::Probe::kTimedScaledRows, true, "128 rows scaled on their way by one warp"),
        std::tuple(gpu::Probe::kTimedFences, false, "fence of shared memory"),
        std::tuple(gpu::Probe::kTimedFences, true, "fence of all memory")})
    checks.push_back(
        {kRungOfRates, name, [&machine, probe, isBefore] { return timeSteps(machine, probe, isBefore); }});
  return checks;
}

}  // namespace sluice::tools
