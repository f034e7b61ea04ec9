#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "runtime/program/codec.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/scarce_threads.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {
namespace {

TEST_CASE("a run for whose threads the system has too few is an error that counts them, and writes nothing") {
  const std::filesystem::path folder = std::getenv("TEST_TMPDIR");
  const std::string path = folder / "layer.slp";
  REQUIRE(writeProgram(buildMoeProgram({.ranks = 3, .cores = 2}), path).ok());
  RunOptions options;
  options.program = path;
  options.out = folder / "out-{rank}.safetensors";
  options.seed = 1;
  options.threads = 2;
  const Expected<Job> job = makeJob(options);
  REQUIRE(job.ok());
  const int before = threadsOfProcess();
  for (int left = 0;; ++left) {
    const ScarceThreads scarce(left);
    const Expected<int> status = runThreads(*job);
    if (status) {
      // of the ranks, and of the other worker of each
      CHECK(left == 3 + 3);
      break;
    }
    INFO(status.error().message);
    const std::string of =
        left < 3 ? " of 3 threads for the ranks: " : " of 1 threads for the workers of a rank: ";
    CHECK(status.error().message.find("started ") != std::string::npos);
    CHECK(status.error().message.find(of + "Resource temporarily unavailable") != std::string::npos);
    CHECK(threadsOfProcess() == before);
    CHECK_FALSE(std::filesystem::exists(folder / "out-0.safetensors"));
  }
  CHECK(std::filesystem::exists(folder / "out-2.safetensors"));
}

}  // namespace
}  // namespace sluice::tools
