#include "runtime/bench/task_overhead.h"

#include <time.h>

#include <algorithm>
#include <memory>

#include "runtime/api/context.h"

namespace sluice {
namespace {

Buffer tokensBuffer(std::string name, Role role, RegionId region, int columns) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.type = DType::kBF16;
  buffer.shape = {{Extent::kTokens, 0}, {Extent::kFixed, columns}};
  buffer.role = role;
  buffer.region = region;
  return buffer;
}

// A family that scales a token, and its lane.
struct Scale {
  EntryId entry;
  std::string name;
  BufferId from, to;
  EventId wait, signal;
  int32_t priority = 0;
};

void addScale(TaskProgram& program, const ChainShape& shape, const Scale& scale) {
  TaskRecord record;
  record.family = FamilyId{static_cast<uint32_t>(program.families.size())};
  Family family;
  family.name = scale.name;
  family.entry = scale.entry;
  family.op = OpKind::kScale;
  family.space = SpaceId{0};
  family.tiling.n = shape.columns;
  family.tiling.alpha = 2;
  family.reads = {scale.from};
  family.writes = {scale.to};
  if (scale.wait) family.waits = {scale.wait};
  if (scale.signal) family.signals = {scale.signal};
  program.families.push_back(family);
  Lane lane;
  lane.name = scale.name;
  lane.entry = scale.entry;
  lane.space = SpaceId{0};
  lane.priority = scale.priority;
  lane.rotation = shape.window % shape.cores;
  lane.seats.resize(static_cast<size_t>(shape.cores));
  for (int slot = 0; slot < shape.window; ++slot) {
    record.slot = static_cast<uint32_t>(slot);
    lane.seats[static_cast<size_t>(slot % shape.cores)].push_back(record);
  }
  program.lanes.push_back(std::move(lane));
}

// One program, its memory and its workers.
struct Bench {
  std::unique_ptr<LocalRanks> ranks;
  std::unique_ptr<Context> context;
  std::vector<int32_t> ids;
  std::vector<BFloat16> in, out;
  std::vector<double> seconds;  // a task, by run
};

double processSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Status prepare(const OverheadCase& spec, Bench& bench) {
  Expected<Program> program = Program::fromTaskProgram(chainProgram(spec.shape));
  if (!program) return program.error();
  bench.ranks = std::make_unique<LocalRanks>(1);
  ContextOptions options;
  options.threads = spec.threads;
  auto context = Context::create(*program, bench.ranks->transport(0), options);
  if (!context) return context.error();
  bench.context = std::move(*context);
  const int64_t tokens = spec.shape.tokens, columns = spec.shape.columns;
  bench.ids.assign(static_cast<size_t>(tokens), 0);
  bench.in.assign(static_cast<size_t>(tokens * columns), toBFloat16(1));
  bench.out.assign(bench.in.size(), toBFloat16(0));
  const auto bind = [&](const std::string& name, DType type, int64_t width, void* data) {
    return bench.context->bind(name, {type, {tokens, width}, data});
  };
  if (Status status = bind("expert_ids", DType::kI32, 1, bench.ids.data()); !status) return status;
  if (Status status = bind("x0", DType::kBF16, columns, bench.in.data()); !status) return status;
  for (const std::string& name : {std::string("routed"), "x" + std::to_string(spec.shape.families)})
    if (Status status = bind(name, DType::kBF16, columns, bench.out.data()); !status) return status;
  if (spec.trace) bench.context->startTrace();
  return bench.context->run("route");
}

Status runOnce(Bench& bench) {
  const double begin = processSeconds();
  if (Status status = bench.context->run("chain"); !status) return status;
  bench.seconds.push_back((processSeconds() - begin) / static_cast<double>(bench.context->lastRun().tasks));
  bench.context->takeTrace();
  return {};
}

}  // namespace

TaskProgram chainProgram(const ChainShape& shape) {
  TaskProgram program;
  program.name = "chain";
  program.target = "cpu";
  program.maxTokens = shape.tokens;
  program.cores = shape.cores;
  Buffer ids = tokensBuffer("expert_ids", Role::kInput, {}, 1);
  ids.type = DType::kI32;
  program.buffers = {ids, tokensBuffer("x0", Role::kInput, {}, shape.columns),
                     tokensBuffer("routed", Role::kOutput, {}, shape.columns)};
  program.entries = {{"route", BufferId{0}, {}}, {"chain", {}, EntryId{0}}};
  program.spaces.push_back({"tokens", SpaceKind::kTokens, 1, shape.window});
  addScale(program, shape, {EntryId{0}, "route", BufferId{1}, BufferId{2}, {}, {}, 0});
  BufferId last{1};
  EventId done;
  for (int f = 1; f <= shape.families; ++f) {
    const bool isLast = f == shape.families;
    const std::string name = "x" + std::to_string(f);
    Scale scale{
        EntryId{1},        name, last, BufferId{static_cast<uint32_t>(program.buffers.size())}, done, {},
        shape.families - f};
    program.buffers.push_back(tokensBuffer(
        name, isLast ? Role::kOutput : Role::kTemp,
        isLast ? RegionId{} : RegionId{static_cast<uint32_t>(program.regions.size())}, shape.columns));
    if (!isLast) {
      program.regions.push_back({name, Extent::kTokens, shape.columns * 2, false, false});
      scale.signal = EventId{static_cast<uint32_t>(program.events.size())};
      program.events.push_back({name + "_done", EntryId{1}, EventSpace::kTokens, EventUnit::kTasks,
                                ThresholdRule::kConstant, 1, false});
    }
    addScale(program, shape, scale);
    last = scale.to;
    done = scale.signal;
  }
  return program;
}

Expected<std::vector<TaskOverhead>> measureTaskOverhead(const std::vector<OverheadCase>& cases, int rounds) {
  std::vector<Bench> benches(cases.size());
  for (size_t i = 0; i < cases.size(); ++i)
    if (Status ready = prepare(cases[i], benches[i]); !ready) return ready.error();
  // the first run touches the memory
  for (int round = -1; round < rounds; ++round)
    for (Bench& bench : benches) {
      if (Status ran = runOnce(bench); !ran) return ran.error();
      if (round < 0) bench.seconds.clear();
    }
  std::vector<TaskOverhead> result;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<double>& seconds = benches[i].seconds;
    std::sort(seconds.begin(), seconds.end());
    result.push_back({cases[i].name, benches[i].context->lastRun().tasks,
                      seconds.empty() ? 0 : seconds.front(),
                      seconds.empty() ? 0 : seconds[seconds.size() / 2]});
  }
  return result;
}

}  // namespace sluice
