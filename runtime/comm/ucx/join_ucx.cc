#include <fmt/format.h>

#include <utility>

#include "runtime/base/clock.h"
#include "runtime/comm/network/network_transport.h"
#include "runtime/comm/ucx/ucx.h"
#include "runtime/comm/ucx/ucx_engine.h"

namespace sluice {
namespace {

class Endpoint final : public UcxEndpoint {
 public:
  explicit Endpoint(std::unique_ptr<ucx::Worker> opened)
      : worker(std::move(opened)), address_(worker->address()) {}

  const std::string& address() const override { return address_; }

  std::unique_ptr<ucx::Worker> worker;     // until this joins
  std::unique_ptr<ucx::UcxEngine> engine;  // while it joins, and after it failed

 private:
  std::string address_;
};

}  // namespace

Expected<std::unique_ptr<UcxEndpoint>> openUcx() {
  auto worker = ucx::Worker::open();
  if (!worker) return worker.error();
  return std::unique_ptr<UcxEndpoint>(std::make_unique<Endpoint>(std::move(*worker)));
}

Expected<std::unique_ptr<Transport>> joinUcx(UcxEndpoint& endpoint, const UcxJob& job) {
  auto& own = static_cast<Endpoint&>(endpoint);
  if (!own.worker) return Error{"UCX: this endpoint has joined already"};
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
  own.engine = std::make_unique<ucx::UcxEngine>(std::move(own.worker), place);
  if (Status ok = own.engine->connect(job.peers, job.timeoutSeconds); !ok)
    return Error{fmt::format("UCX: {}", ok.error().message)};
  return network::NetworkTransport::create(std::move(own.engine), place, std::move(*localTransport),
                                           job.timeoutSeconds);
}

}  // namespace sluice
