// The cases of network/ranks_test.cc as processes that this one forks (UcxMeeting).
//
// usage: ucx_ranks RANKS [CATCH2 ARGUMENT...]: prints what rank 0 says; what all say, where one fails.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/runtime/comm/network/network_ranks.h"
#include "tests/runtime/comm/ucx/ucx_meeting.h"
#include "tests/testing/catch_runner.h"
#include "tests/testing/processes.h"

namespace sluice {
namespace {

UcxMeeting* meeting = nullptr;
int ownRank = 0;

std::string runRank(int argc, char** argv) {
  std::ostringstream said;
  auto* const shown = std::cout.rdbuf(said.rdbuf());
  const int failed = runCases(argc, argv);
  std::cout.rdbuf(shown);
  return fmt::format("{}{}", failed == 0 ? "passed\n" : "", said.str());
}

}  // namespace

std::unique_ptr<Transport> joinNetwork(double timeoutSeconds) {
  auto transport = meeting->join(ownRank, std::getenv("SLUICE_TEST_MESSAGES"), timeoutSeconds);
  INFO((transport ? "" : transport.error().message));
  REQUIRE(transport.ok());
  return std::move(*transport);
}

}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > UcxMeeting::kMaxRanks) {
    std::fprintf(stderr, "usage: ucx_ranks RANKS [CATCH2 ARGUMENT...]\n");
    return 2;
  }
  UcxMeeting ours(ranks);
  meeting = &ours;
  argv[1] = argv[0];
  Processes processes(ranks, [&](const Child& child) {
    ownRank = child.rank();
    return runRank(argc - 1, argv + 1);
  });
  int status = 0;
  const char* const seconds = std::getenv("SLUICE_TEST_SECONDS");  // before it ends those that are left
  const auto ends = processes.wait(seconds ? std::atof(seconds) : 200);
  for (const ChildEnd& end : ends)
    if (!end.text.starts_with("passed\n")) status = 1;
  for (int rank = 0; rank < (status ? ranks : 1); ++rank) {
    const ChildEnd& end = ends[static_cast<size_t>(rank)];
    std::printf("%s", end.text.c_str());
    if (!end.returned || end.late)
      std::printf("rank %d ended by signal %d, status %d%s\n", rank, end.signal, end.status,
                  end.late ? ", late" : "");
  }
  return status;
}
