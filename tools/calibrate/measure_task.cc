#include <memory>
#include <vector>

#include "runtime/api/context.h"
#include "tools/calibrate/measure.h"

namespace sluice::tools {
namespace {

constexpr int32_t kTokens = 1 << 14;
constexpr int32_t kColumns = 8;
constexpr int32_t kFamilies = 8;
constexpr int32_t kWindow = 64;

Buffer tokensBuffer(std::string name, Role role, RegionId region) {
  return {.name = std::move(name),
          .alias = {},
          .type = DType::kBF16,
          .shape = {{Extent::kTokens, 0}, {Extent::kFixed, kColumns}},
          .role = role,
          .region = region};
}

// A chain of families that double a token's few columns, one token per task, so that the kernels take almost
// no time.
TaskProgram chainProgram(int cores) {
  TaskProgram program;
  program.name = "calibrate";
  program.target = "cpu";
  program.maxTokens = kTokens;
  program.cores = cores;
  program.buffers.push_back({.name = "expert_ids",
                             .alias = {},
                             .type = DType::kI32,
                             .shape = {{Extent::kTokens, 0}, {Extent::kFixed, 1}},
                             .role = Role::kInput,
                             .region = {}});
  program.entries.push_back({"chain", BufferId{0}, {}});
  program.spaces.push_back({"tokens", SpaceKind::kTokens, 1, kWindow});
  program.buffers.push_back(tokensBuffer("x0", Role::kInput, {}));
  for (uint32_t f = 0; f < kFamilies; ++f) {
    const bool isLast = f + 1 == kFamilies;
    const std::string name = "x" + std::to_string(f + 1);
    const RegionId region = isLast ? RegionId{} : RegionId{f};
    if (!isLast) program.regions.push_back({name, Extent::kTokens, kColumns * 2, false, false});
    program.buffers.push_back(tokensBuffer(name, isLast ? Role::kOutput : Role::kTemp, region));
    if (!isLast)
      program.events.push_back({name + "_done", EntryId{0}, EventSpace::kTokens, EventUnit::kTasks,
                                ThresholdRule::kConstant, 1, false});
    Family family;
    family.name = "scale" + std::to_string(f);
    family.entry = EntryId{0};
    family.op = OpKind::kScale;
    family.space = SpaceId{0};
    family.tiling.n = kColumns;
    family.tiling.alpha = 2;
    family.reads = {BufferId{f + 1}};
    family.writes = {BufferId{f + 2}};
    if (f > 0) family.waits = {EventId{f - 1}};
    if (!isLast) family.signals = {EventId{f}};
    program.families.push_back(family);
    TaskRecord record;
    record.family = FamilyId{f};
    Lane lane{.name = family.name,
              .entry = EntryId{0},
              .space = SpaceId{0},
              .core = CoreKind::kUnified,
              .priority = kFamilies - 1 - static_cast<int32_t>(f),
              .rotation = kWindow % cores,
              .seats = {}};
    lane.seats.resize(static_cast<size_t>(cores));
    for (uint32_t slot = 0; slot < kWindow; ++slot) {
      record.slot = slot;
      lane.seats[slot % static_cast<uint32_t>(cores)].push_back(record);
    }
    program.lanes.push_back(std::move(lane));
  }
  return program;
}

Expected<double> bestRun(Context& context, int passes) {
  double best = 1;
  for (int pass = 0; pass < 4 * passes + 2; ++pass) {
    if (Status status = context.run("chain"); !status) return status.error();
    const RunStats& stats = context.lastRun();
    best = std::min(best, (stats.runSeconds - stats.bindSeconds) / static_cast<double>(stats.tasks));
  }
  return best;
}

}  // namespace

Expected<double> measureTask(int cores, const Effort& effort) {
  const int threads = std::min(cores, 2);
  Expected<Program> program = Program::fromTaskProgram(chainProgram(threads));
  if (!program) return program.error();
  LocalRanks ranks(1);
  ContextOptions options;
  options.threads = threads;
  Expected<std::unique_ptr<Context>> context = Context::create(*program, ranks.transport(0), options);
  if (!context) return context.error();
  std::vector<int32_t> ids(kTokens, 0);
  std::vector<BFloat16> in(size_t{kTokens} * kColumns, toBFloat16(0)), out(in.size());
  const auto bind = [&](const char* name, DType type, int64_t columns, void* data) {
    return (*context)->bind(name, {type, {kTokens, columns}, data});
  };
  if (Status status = bind("expert_ids", DType::kI32, 1, ids.data()); !status) return status.error();
  if (Status status = bind("x0", DType::kBF16, kColumns, in.data()); !status) return status.error();
  const std::string last = "x" + std::to_string(kFamilies);
  if (Status status = bind(last.c_str(), DType::kBF16, kColumns, out.data()); !status) return status.error();
  const Expected<double> seconds = bestRun(**context, effort.passes);
  if (!seconds) return seconds.error();
  return *seconds * threads;
}

}  // namespace sluice::tools
