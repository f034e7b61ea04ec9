// UcxEngine: active messages of UCX, each with a flight.
//
// The receiver copies puts to their place: over TCP that is faster than ucp_put_nbx, needs no flush and no
// message after it, and no memory is registered, which networks that pin registered memory would do with all
// that is only reserved. The messages of a flight are applied natively, in order, once it and all earlier
// ones have arrived.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/comm/network/engine.h"
#include "runtime/comm/ucx/flight.h"
#include "runtime/comm/ucx/ucx.h"
#include "runtime/comm/ucx/worker.h"

namespace sluice::ucx {

class UcxEngine final : public network::Engine {
 public:
  UcxEngine(std::unique_ptr<Worker> worker, const network::Place& place);
  ~UcxEngine() override;

  // Collective; once, before anything else: returns when all ranks have answered. Errors: UCX cannot reach a
  // rank; one does not answer in time.
  Status connect(const std::vector<UcxPeer>& peers, double seconds);

  std::string_view kind() const override { return "ucx"; }
  uint32_t epoch() const override { return epoch_.load(std::memory_order_seq_cst); }
  void wake() override;
  void rest(uint32_t seen, int64_t still) override;
  Status attach(std::byte*, size_t) override { return {}; }
  Expected<bool> turn(network::Outbox& outbox, network::Receiver& receiver) override;
  void abort(const network::Abort& abort) override;
  // `rank` has received everything, or has ended.
  bool isDone(int rank, network::Outbox& outbox) const override;
  Status finish(int) override { return {}; }
  CommStats stats() const override { return stats_; }
  void giveUp(const std::string&) override {}

 private:
  struct Departure {
    FlightHeader header;
    std::vector<std::byte> bytes;
    size_t room = 0;  // of the outbox
    void* request = nullptr;
  };
  struct Arrival {
    FlightHeader header;
    std::vector<std::byte> bytes;
    void* request = nullptr;
  };
  struct Peer {
    int rank = 0;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t failure = UCS_OK;  // set by UCX
    bool joined = false;
    bool gone = false;     // no longer connected
    bool left = false;     // sent kLeft
    bool sawLeft = false;  // received this rank's kLeft
    bool owesSawLeft = false;
    uint64_t sent = 0;   // flights
    uint64_t taken = 0;  // flights whose messages were given to the receiver
    std::map<uint64_t, std::vector<network::Message>> waiting;  // of later flights, by number
    std::deque<Departure> departures;                           // under way; a deque, because UCX reads them
    std::optional<network::Abort> abort;                        // to be sent
  };

  Status open(const std::vector<UcxPeer>& peers);
  Status awaitAll(double seconds);
  bool progress();
  ucs_status_t arrive(const FlightHeader& header, void* data, size_t length, bool announced);
  bool takeArrivals(network::Receiver& receiver);
  void apply(const FlightHeader& header, std::span<const std::byte> bytes, network::Receiver& receiver);
  void give(Peer& peer, const network::Message& message, network::Receiver& receiver);
  void loseFailed(network::Receiver& receiver);
  bool advance(Peer& peer, network::Outbox& outbox);
  network::Batch load(Peer& peer, network::Outbox& outbox);
  void send(Peer& peer, const network::Batch& batch);
  // Whether the request has ended; frees it.
  bool hasEnded(void*& request, ucs_status_t& status);
  void closeAll();

  std::unique_ptr<Worker> worker_;
  const Library& ucx_;
  const network::Place place_;
  std::vector<Peer> peers_;                // by rank
  std::list<Arrival> arrivals_;            // still on their way, or from before there was a receiver
  network::Receiver* receiver_ = nullptr;  // while turn() runs
  bool closing_ = false;
  Status broken_;  // a failure inside a callback of UCX
  CommStats stats_;

  std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> sleeping_{false};
  FileDescriptor woken_;  // readable after wake()
};

}  // namespace sluice::ucx
