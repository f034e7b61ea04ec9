// A rank of `sluice run --seed 1 --overlap` over UCX, to compare it with MPI (network_overlap.sh): ranks
// exchange their addresses by files of a folder that all of them see.
//
// usage: ucx-run FOLDER THREADS REPEAT PROGRAM   with RANK and WORLD_SIZE set, as by torchrun; FOLDER: empty
// at first
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "runtime/comm/ucx/ucx.h"
#include "tools/cli/run_job.h"
#include "tools/launch/rank_variables.h"

namespace sluice::tools {
namespace {

constexpr double kTimeout = 120;

// What a rank wrote; waits for it.
Expected<std::string> readPeer(const std::filesystem::path& path) {
  for (int i = 0; !std::filesystem::exists(path); ++i) {
    if (i == 6000) return Error{fmt::format("waited 60 s for {}", path.string())};
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Expected<std::unique_ptr<Transport>> join(const std::filesystem::path& folder, const GivenRank& given) {
  auto endpoint = openUcx();
  if (!endpoint) return endpoint.error();
  const std::filesystem::path own = folder / std::to_string(given.rank);
  std::ofstream(own.string() + ".part", std::ios::binary) << (*endpoint)->address();
  std::filesystem::rename(own.string() + ".part", own);
  UcxJob job{"ucx-run", given.rank, {}, kTimeout};
  for (int rank = 0; rank < given.size; ++rank) {
    auto address = readPeer(folder / std::to_string(rank));
    if (!address) return address.error();
    job.peers.push_back({*address, std::to_string(rank)});
  }
  return joinUcx(**endpoint, job);
}

Expected<int> run(char** arguments) {
  const auto given = findGivenRank(processVariables());
  if (!given) return given.error();
  if (!*given) return Error{"RANK and WORLD_SIZE are not set"};
  RunOptions options;
  options.program = arguments[4];
  options.threads = std::atoi(arguments[2]);
  options.repeat = std::atoi(arguments[3]);
  options.seed = 1;
  options.timeout = kTimeout;
  options.overlap = true;
  const Expected<Job> job = makeJob(options);
  auto transport = join(arguments[1], **given);
  if (!transport) return transport.error();
  return runAsRank(job, kTimeout, **transport);
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: ucx-run FOLDER THREADS REPEAT PROGRAM\n");
    return 2;
  }
  const auto status = sluice::tools::run(argv);
  if (status) return *status;
  std::fprintf(stderr, "ucx-run: error: %s\n", status.error().message.c_str());
  return 1;
}
