#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "runtime/program/codec.h"
#include "tests/testing/moe_program.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {
namespace {

Job jobOf(const RunOptions& more, int ranks = 3) {
  RunOptions options = more;
  options.program = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "layer.slp";
  REQUIRE(writeProgram(buildMoeProgram({.ranks = ranks, .experts = 7, .topK = 2, .maxTokens = 50}),
                       options.program)
              .ok());
  Expected<Job> job = makeJob(options);
  REQUIRE(job.ok());
  return std::move(*job);
}

Job madeWith(const std::string& tokens, const std::string& routing, const std::string& entries = "",
             int ranks = 3) {
  RunOptions options;
  options.seed = 1;
  options.tokens = tokens;
  options.routing = routing;
  options.entries = entries;
  return jobOf(options, ranks);
}

double bytesOf(const TensorMap& tensors) {
  double bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

TEST_CASE("inputs and outputs are counted as they are made") {
  const Job job = madeWith("11,0,50", "uniform");
  double inputs = 0, outputs = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Expected<Rank> loaded = loadRank(job, rank);
    REQUIRE(loaded.ok());
    inputs += bytesOf(loaded->inputs);
    outputs += bytesOf(loaded->outputs);
  }
  CHECK(estimateMemory(job).inputs == inputs);
  CHECK(estimateMemory(job).outputs == outputs);
}

TEST_CASE("steps need memory by their tokens, pairs and entries, and masked pairs need none") {
  const double all = estimateMemory(madeWith("50", "uniform")).steps;
  CHECK(estimateMemory(madeWith("25", "uniform")).steps < all);
  CHECK(estimateMemory(madeWith("50", "masked")).steps < all);
  CHECK(estimateMemory(madeWith("50", "onehot")).steps < all);
  CHECK(estimateMemory(madeWith("50", "uniform", "forward")).steps < all);
}

// What the steps of a job of one rank have touched.
double touchedBy(const Job& job) {
  Expected<Rank> rank = loadRank(job, 0);
  LocalRanks local(1);
  auto workspace = Workspace::create(local.transport(0), {.threads = 1});
  ContextOptions options = job.options;
  options.workspace = *workspace;
  auto context = Context::create(job.program, local.transport(0), options);
  for (auto* tensors : {&rank->inputs, &rank->outputs})
    for (auto& [name, tensor] : *tensors)
      REQUIRE((*context)->bind(name, {tensor.type(), tensor.shape(), tensor.data()}).ok());
  for (const EntryId entry : job.entries) REQUIRE((*context)->run(job.program.tables().at(entry).name).ok());
  return static_cast<double>((*workspace)->bytes() + (*context)->savedBytes());
}

TEST_CASE("steps touch at least what is counted") {
  for (const char* routing : {"uniform", "onehot", "masked", "half-empty"}) {
    INFO(routing);
    const Job job = madeWith("40", routing, "", 1);
    CHECK(estimateMemory(job).steps > 0);
    CHECK(estimateMemory(job).steps <= touchedBy(job));
  }
}

TEST_CASE(
    "a run that needs more than is left is refused with both numbers, and one that needs as much is not") {
  const Job job = madeWith("50", "uniform");
  const RunMemory needs = estimateMemory(job);
  const auto all = static_cast<int64_t>(needs.inputs + needs.outputs + needs.steps);
  CHECK(checkMemory(job, {all, "its container"}).ok());
  const Status refused = checkMemory(job, {all - 1, "its container"});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("3 ranks need at least 0.00 GiB of memory (inputs 0.00, ") == 0);
  CHECK(refused.error().message.find("but its container has 0.00 GiB left") != std::string::npos);
}

TEST_CASE("of inputs that are read, what does not depend on tokens is counted") {
  RunOptions options;
  options.in = "in-{rank}.safetensors";
  const Job job = jobOf(options);
  CHECK(estimateMemory(job).inputs > 0);
  CHECK(estimateMemory(job).inputs < estimateMemory(madeWith("50", "uniform")).inputs);
}

}  // namespace
}  // namespace sluice::tools
