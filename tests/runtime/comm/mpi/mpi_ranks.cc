// The cases of network/ranks_test.cc as ranks that mpirun starts (with_mpirun.sh), and those of MPI alone.
#include <mpi.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "runtime/comm/mpi/mpi.h"
#include "tests/runtime/comm/network/network_ranks.h"
#include "tests/testing/catch_runner.h"

namespace sluice {

std::unique_ptr<Transport> joinJob(const MpiJob& job) {
  auto transport = joinMpi(job);
  INFO((transport ? "" : transport.error().message));
  REQUIRE(transport.ok());
  return std::move(*transport);
}

std::unique_ptr<Transport> joinNetwork(double timeoutSeconds) {
  return joinJob({.timeoutSeconds = timeoutSeconds, .sharedMemory = !std::getenv("SLUICE_TEST_MESSAGES")});
}

namespace {

TEST_CASE("defaults for MPI leave what is set, and give UCX any network where it is asked for") {
  const auto value = [](const char* variable) {
    const char* found = std::getenv(variable);
    return std::string(found ? found : "");
  };
  const char* const variables[] = {"OMPI_MCA_pml", "OMPI_MCA_osc", "OMPI_MCA_pml_ucx_tls",
                                   "OMPI_MCA_pml_ucx_progress_iterations"};
  std::map<std::string, std::string> before;
  for (const char* variable : variables) {
    before[variable] = value(variable);
    unsetenv(variable);
  }
  setMpiDefaults();
  CHECK(value("OMPI_MCA_osc") == "^ucx");
  CHECK(value("OMPI_MCA_pml_ucx_progress_iterations") == "1");
  CHECK(value("OMPI_MCA_pml_ucx_tls").empty());
  setenv("OMPI_MCA_pml", "ucx", 1);
  setenv("OMPI_MCA_osc", "rdma", 1);
  setMpiDefaults();
  CHECK(value("OMPI_MCA_osc") == "rdma");
  CHECK(value("OMPI_MCA_pml_ucx_tls") == "any");
  for (const auto& [variable, was] : before)
    was.empty() ? unsetenv(variable.c_str()) : setenv(variable.c_str(), was.c_str(), 1);
}

CommStats afterManySignals(bool batch) {
  auto transport = joinJob({.timeoutSeconds = 20, .sharedMemory = false, .batchSignals = batch});
  const SymmetricHandle data = *transport->allocate(1 << 20), event = *transport->allocate(64);
  const int next = (transport->rank() + 1) % transport->size();
  for (uint64_t i = 0; i < 200; ++i) {
    transport->put(next, data, i * 8, &i, sizeof(i));
    transport->signal(next, event, 0, 1);
  }
  REQUIRE(awaitWord(*transport, event, 0, 200));
  transport->signal(next, event, 8, 1);  // the other way: what was sent is counted when something moved since
  REQUIRE(awaitWord(*transport, event, 8, 1));
  AllGather gather = *AllGather::create(*transport, 1);
  meet(gather, *transport);
  return transport->stats();
}

TEST_CASE("signals to one rank share flushes and messages, unless told not to") {
  const CommStats each = afterManySignals(false), shared = afterManySignals(true);
  CHECK(each.puts >= 200);
  CHECK(each.flushes >= 200);
  CHECK(shared.flushes < each.flushes / 4);
  CHECK(shared.messages < each.messages);
  CHECK(shared.signals >= 200);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  int level = 0;
  sluice::setMpiDefaults();  // as joinMpi() does where it starts MPI; here it is called many times
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  const int failed = sluice::runCases(argc, argv);
  if (failed) {  // mpirun ends the others, which may wait for what this rank did not do
    std::fflush(nullptr);
    std::_Exit(failed);
  }
  MPI_Finalize();
  return failed;
}
