#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/cli/run_job.h"

namespace sluice::tools {
namespace {

constexpr double kGiB = 1 << 30;

// The bytes of the caller's tensors for these buffers at a rank. Rows of outputs are in the memory of the
// step.
double countBytes(const TaskProgram& program, const std::vector<BufferId>& buffers, int rank, int64_t tokens,
                  int64_t rows = 0) {
  double bytes = 0;
  for (const BufferId id : buffers) {
    const Buffer& buffer = program.at(id);
    double size = dtypeBytes(buffer.type);
    for (const Dim& dim : buffer.shape) size *= static_cast<double>(program.sizeAt(rank, dim, tokens, rows));
    bytes += size;
  }
  return bytes;
}

// The regions that the entries touch.
std::set<RegionId> listRegions(const TaskProgram& program, const std::vector<EntryId>& entries) {
  std::set<RegionId> regions;
  for (const Family& family : program.families)
    for (const auto* list : {&family.reads, &family.writes})
      for (const BufferId id : *list)
        if (id && program.at(id).region &&
            std::find(entries.begin(), entries.end(), family.entry) != entries.end())
          regions.insert(program.at(id).region);
  return regions;
}

// A lower bound on the tokens' pairs that are not masked.
double estimatePairs(const InputsSpec& made, int32_t topK, double tokens) {
  if (made.routing.kind == RoutingKind::kOneHot) return tokens;
  return made.routing.kind == RoutingKind::kMasked ? tokens * topK / 2 : tokens * topK;
}

// The number of elements of the region at a rank.
double countElements(const TaskProgram& program, Extent extent, int rank, double tokens, double pairs) {
  switch (extent) {
    case Extent::kFixed:
      return 1;
    case Extent::kTokens:
      return tokens;
    case Extent::kPairs:
      return pairs * program.mesh.tp;
    case Extent::kRows:  // the rows of all ranks together are the pairs that all ranks send
      return pairs * program.mesh.sources() / program.mesh.ep;
    case Extent::kExperts:
      return program.countExperts(rank);
  }
  return 0;
}

}  // namespace

RunMemory estimateMemory(const Job& job) {
  const TaskProgram& program = job.program.tables();
  const int ranks = job.program.ranks();
  std::vector<int64_t> tokens = job.tokens;
  tokens.resize(static_cast<size_t>(ranks));
  const std::set<RegionId> regions = listRegions(program, job.entries);
  RunMemory memory;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t own = tokens[static_cast<size_t>(rank)];
    const double pairs = job.made ? estimatePairs(*job.made, program.topK, static_cast<double>(own)) : 0;
    const int64_t rows = hasExpertIds(program) ? 0 : rowsWithoutIds(program, rank, tokens);
    memory.inputs += countBytes(program, job.tensors.inputs, rank, own, rows);
    memory.outputs += countBytes(program, job.tensors.outputs, rank, own);
    for (const RegionId id : regions)
      memory.steps += countElements(program, program.at(id).extent, rank, static_cast<double>(own), pairs) *
                      static_cast<double>(program.at(id).stride);
  }
  return memory;
}

Status checkMemory(const Job& job, const MemoryLeft& left) {
  const RunMemory needs = estimateMemory(job);
  const double all = needs.inputs + needs.outputs + needs.steps;
  if (all <= static_cast<double>(left.bytes)) return {};
  return Error{fmt::format(
      "{} ranks need at least {:.2f} GiB of memory (inputs {:.2f}, outputs {:.2f}, steps {:.2f}), but {} has "
      "{:.2f} GiB left",
      job.program.ranks(), all / kGiB, needs.inputs / kGiB, needs.outputs / kGiB, needs.steps / kGiB, left.of,
      static_cast<double>(left.bytes) / kGiB)};
}

}  // namespace sluice::tools
