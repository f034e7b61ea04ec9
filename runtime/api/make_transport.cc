#include "runtime/api/make_transport.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/comm/in_process.h"
#include "runtime/comm/mpi/mpi.h"
#include "runtime/comm/shm/shared_memory.h"
#include "runtime/workers/cores.h"

namespace sluice {
namespace {

using Transports = Expected<std::vector<std::shared_ptr<Transport>>>;

Transports one(Expected<std::unique_ptr<Transport>> transport) {
  if (!transport) return transport.error();
  std::vector<std::shared_ptr<Transport>> all;
  all.push_back(std::move(*transport));
  return all;
}

// Each transport keeps the group alive.
Transports makeThreads(const TransportSpec& spec) {
  const auto group = std::make_shared<InProcessGroup>(spec.size);
  std::vector<std::shared_ptr<Transport>> all;
  for (int rank = 0; rank < spec.size; ++rank) all.emplace_back(group, &group->transport(rank));
  return all;
}

Transports makeShared(const TransportSpec& spec) {
  return one(joinSharedMemory({spec.job, spec.rank, spec.size, spec.timeoutSeconds}));
}

Transports makeMpi(const TransportSpec& spec) {
  MpiJob job;
  job.timeoutSeconds = spec.timeoutSeconds;
  return one(joinMpi(job));
}

struct Maker {
  const char* kind;
  RanksAre ranks;
  Transports (*make)(const TransportSpec&);
};

constexpr Maker kMakers[] = {{"threads", RanksAre::kThreads, makeThreads},
                             {"shm", RanksAre::kProcesses, makeShared},
                             {"mpi", RanksAre::kMpi, makeMpi}};

}  // namespace

TransportKinds transportKinds() {
  TransportKinds kinds;
  for (const Maker& maker : kMakers) kinds.emplace_back(maker.kind, maker.ranks);
  return kinds;
}

Transports makeTransports(const TransportSpec& spec) {
  for (const Maker& maker : kMakers) {
    if (maker.kind != spec.kind) continue;
    readMachine();
    return maker.make(spec);
  }
  return Error{fmt::format("unknown transport '{}'", spec.kind)};
}

Expected<std::shared_ptr<Transport>> makeTransport(const TransportSpec& spec) {
  auto transports = makeTransports(spec);
  if (!transports) return transports.error();
  return transports->front();
}

}  // namespace sluice
