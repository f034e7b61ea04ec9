#include <fmt/format.h>

#include <utility>

#include "runtime/base/clock.h"
#include "runtime/comm/network/network_transport.h"
#include "runtime/comm/ucx/ucx.h"
#include "runtime/comm/ucx/ucx_engine.h"

namespace sluice {

Expected<std::unique_ptr<UcxEndpoint>> openUcx() {
  auto worker = ucx::Worker::open();
  if (!worker) return worker.error();
  return std::unique_ptr<UcxEndpoint>(std::move(*worker));
}

Expected<std::unique_ptr<Transport>> joinUcx(std::unique_ptr<UcxEndpoint> endpoint, const UcxJob& job) {
  const int size = static_cast<int>(job.peers.size());
  if (job.rank < 0 || job.rank >= size) return Error{fmt::format("UCX for rank {} of {}", job.rank, size)};
  if (Status sane = checkTimeLimit(job.timeoutSeconds); !sane) return sane.error();
  for (int rank = 0; rank < size; ++rank)
    if (!ucx::isAddress(job.peers[static_cast<size_t>(rank)].address))
      return Error{fmt::format("UCX: the address of rank {} is damaged", rank)};
  network::Place place{job.rank, size, {}, 0};
  for (int rank = 0; rank < size; ++rank) {
    if (job.peers[static_cast<size_t>(rank)].machine != job.peers[static_cast<size_t>(job.rank)].machine)
      continue;
    if (rank == job.rank) place.localRank = static_cast<int>(place.localRanks.size());
    place.localRanks.push_back(rank);
  }
  auto localTransport = network::joinNeighbours(place, job.name, job.timeoutSeconds);
  if (!localTransport) return localTransport.error();
  std::unique_ptr<ucx::Worker> worker(static_cast<ucx::Worker*>(endpoint.release()));
  auto engine = ucx::UcxEngine::connect(std::move(worker), place, job.peers, job.timeoutSeconds);
  if (!engine) return engine.error();
  return network::NetworkTransport::create(std::move(*engine), place, std::move(*localTransport),
                                           job.timeoutSeconds);
}

}  // namespace sluice
