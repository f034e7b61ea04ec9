#include "runtime/comm/ucx/ucx_engine.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"

namespace sluice::ucx {
namespace {

using network::Abort;
using network::Batch;
using network::Message;
using network::MessageKind;
using network::Outbox;
using network::Receiver;

constexpr unsigned kChannel = 1;  // the number of the active message
// Two flights keep a link busy; more would only delay the signals of later ones.
constexpr size_t kDepartures = 2;
constexpr network::BatchLimits kLimits{.bytes = size_t{256} << 10};
static_assert(kLimits.bytes + Outbox::kLargestPut < kMaxFlightBytes);

constexpr int64_t kAwake = 20'000;           // ns without work, after which the courier sleeps
constexpr int kLongestSleep = 1000;          // ms
constexpr int64_t kGoodbye = 1'000'000'000;  // ns for connections to end in good order

}  // namespace

UcxEngine::UcxEngine(std::unique_ptr<Worker> worker, const network::Place& place)
    : worker_(std::move(worker)),
      ucx_(worker_->library()),
      place_(place),
      peers_(static_cast<size_t>(place.size)),
      woken_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (int rank = 0; rank < place.size; ++rank) peers_[static_cast<size_t>(rank)].rank = rank;
  peers_[static_cast<size_t>(place.rank)].gone = true;
}

Status UcxEngine::connect(const std::vector<UcxPeer>& peers, double seconds) {
  if (!woken_) return Error{fmt::format("no file for events: {}", std::strerror(errno))};
  if (Status ok = open(peers); !ok) return ok;
  return awaitAll(seconds);
}

Status UcxEngine::open(const std::vector<UcxPeer>& peers) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kChannel;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.arg = this;
  handler.cb = [](void* self, const void* header, size_t headerBytes, void* data, size_t length,
                  const ucp_am_recv_param_t* param) {
    FlightHeader copy;
    if (headerBytes == sizeof(copy))
      std::memcpy(&copy, header, sizeof(copy));
    else
      copy.source = UINT32_MAX;
    return static_cast<UcxEngine*>(self)->arrive(copy, data, length,
                                                 param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
  };
  if (Status ok = worker_->checked(ucx_.setReceiver(worker_->get(), &handler), "receiver"); !ok) return ok;
  for (Peer& peer : peers_) {
    if (peer.rank == place_.rank) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address =
        reinterpret_cast<const ucp_address_t*>(peers[static_cast<size_t>(peer.rank)].address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.arg = &peer;
    params.err_handler.cb = [](void* failed, ucp_ep_h, ucs_status_t status) {
      static_cast<Peer*>(failed)->failure = status;
    };
    const std::string what = fmt::format("connection to rank {}", peer.rank);
    if (Status ok = worker_->checked(ucx_.connect(worker_->get(), &params, &peer.endpoint), what.c_str());
        !ok)
      return ok;
    send(peer, {});  // with number 0
  }
  return {};
}

// Every rank says hello to every other, so that an error at the start names the ranks that cannot be reached.
Status UcxEngine::awaitAll(double seconds) {
  const int64_t deadline = monotonicNanoseconds() + limitNanoseconds(seconds);
  int64_t lastMoved = monotonicNanoseconds();
  while (true) {
    const uint32_t seen = epoch();
    const bool moved = progress();
    if (!broken_) return broken_;
    std::string missing;
    for (const Peer& peer : peers_) {
      if (peer.rank == place_.rank) continue;
      if (peer.failure != UCS_OK)
        return worker_->checked(peer.failure, fmt::format("connection to rank {}", peer.rank).c_str());
      if (!peer.joined) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer.rank);
    }
    if (missing.empty()) return {};
    const int64_t now = monotonicNanoseconds();
    if (now > deadline)
      return Error{
          fmt::format("waited {:g} s for rank {} to answer; UCX_NET_DEVICES and UCX_TLS choose the network",
                      seconds, missing)};
    if (moved) lastMoved = now;
    rest(seen, now - lastMoved);
  }
}

UcxEngine::~UcxEngine() {
  closeAll();
  worker_.reset();  // before the memory that it may still use
}

void UcxEngine::closeAll() {
  closing_ = true;
  std::vector<void*> requests;
  for (Peer& peer : peers_) {
    if (!peer.endpoint) continue;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    // in good order if the peer still reads: it may wait for the last message
    params.flags = peer.sawLeft && !peer.gone ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
    requests.push_back(ucx_.close(std::exchange(peer.endpoint, nullptr), &params));
  }
  const int64_t deadline = monotonicNanoseconds() + kGoodbye;
  ucs_status_t ignored;
  while (monotonicNanoseconds() < deadline) {
    std::erase_if(requests, [&](void*& request) { return hasEnded(request, ignored); });
    if (requests.empty()) return;
    progress();
  }
}

void UcxEngine::wake() {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  // pairs with the store in rest(): either this sees the sleeper, or the sleeper sees the new epoch
  if (sleeping_.load(std::memory_order_seq_cst)) eventfd_write(woken_.get(), 1);
}

void UcxEngine::rest(uint32_t seen, int64_t still) {
  if (still < kAwake) return;
  sleeping_.store(true, std::memory_order_seq_cst);
  // refuses to arm while there is work
  if (epoch() == seen && ucx_.workerArm(worker_->get()) == UCS_OK) {
    pollfd files[] = {{worker_->file(), POLLIN, 0}, {woken_.get(), POLLIN, 0}};
    poll(files, 2, kLongestSleep);
  }
  sleeping_.store(false, std::memory_order_seq_cst);
  eventfd_t ignored;
  eventfd_read(woken_.get(), &ignored);
}

bool UcxEngine::progress() {
  bool moved = false;
  while (ucx_.workerProgress(worker_->get()) != 0) moved = true;
  return moved;
}

Expected<bool> UcxEngine::turn(Outbox& outbox, Receiver& receiver) {
  receiver_ = &receiver;
  bool moved = takeArrivals(receiver);
  moved = progress() || moved;
  receiver_ = nullptr;
  if (!broken_) return broken_.error();
  loseFailed(receiver);
  for (Peer& peer : peers_) {
    if (peer.rank == place_.rank) continue;
    moved = advance(peer, outbox) || moved;
  }
  return moved;
}

// Called by UCX inside progress().
ucs_status_t UcxEngine::arrive(const FlightHeader& header, void* data, size_t length, bool announced) {
  if (closing_) return UCS_OK;
  if (header.source >= peers_.size() || length > kMaxFlightBytes) {
    broken_ =
        Error{fmt::format("UCX: a message of {} bytes from rank {}, expected at most {} from rank 0 to {}",
                          length, header.source, kMaxFlightBytes, peers_.size() - 1)};
    return UCS_OK;
  }
  if (header.number == 0) {
    peers_[header.source].joined = true;
    return UCS_OK;
  }
  if (receiver_ && !announced) {
    apply(header, {static_cast<const std::byte*>(data), length}, *receiver_);
    return UCS_OK;
  }
  Arrival& arrival = arrivals_.emplace_back();
  arrival.header = header;
  arrival.bytes.resize(length);
  if (!announced) {
    std::memcpy(arrival.bytes.data(), data, length);
    return UCS_OK;
  }
  const ucp_request_param_t params{};
  arrival.request = ucx_.receive(worker_->get(), data, arrival.bytes.data(), length, &params);
  return UCS_INPROGRESS;
}

bool UcxEngine::takeArrivals(Receiver& receiver) {
  bool moved = false;
  for (auto arrival = arrivals_.begin(); arrival != arrivals_.end();) {
    ucs_status_t status;
    if (!hasEnded(arrival->request, status)) {
      ++arrival;
      continue;
    }
    moved = true;
    // a failed one is the loss of the connection, which is noticed by itself
    if (status == UCS_OK) apply(arrival->header, arrival->bytes, receiver);
    arrival = arrivals_.erase(arrival);
  }
  return moved;
}

void UcxEngine::apply(const FlightHeader& header, std::span<const std::byte> bytes, Receiver& receiver) {
  Peer& peer = peers_[header.source];
  const auto refuse = [&](const std::string& why) {
    receiver.takeAbort({fmt::format("rank {}: rank {} sent {}", place_.rank, peer.rank, why), -1});
  };
  auto flight = unpackFlight(header, bytes);
  if (!flight) return refuse(flight.error().message);
  for (const ArrivedPut& put : flight->puts) {
    if (put.handle == kText) {
      // the rank that was lost comes with the message, which is the only one of its flight
      const int lost = flight->messages.empty() ? -1 : static_cast<int>(flight->messages[0].offset) - 1;
      receiver.takeAbort(
          {std::string(reinterpret_cast<const char*>(put.bytes.data()), put.bytes.size()), lost});
      continue;
    }
    std::byte* const place = receiver.memory(put.handle, put.offset, put.bytes.size());
    if (!place)
      return refuse(fmt::format("{} bytes for byte {} of symmetric allocation {}, where none are",
                                put.bytes.size(), put.offset, put.handle));
    std::memcpy(place, put.bytes.data(), put.bytes.size());
  }
  if (header.number <= peer.taken || !peer.waiting.emplace(header.number, std::move(flight->messages)).second)
    return refuse(fmt::format("message {} twice", header.number));
  for (auto next = peer.waiting.begin(); next != peer.waiting.end() && next->first == peer.taken + 1;
       next = peer.waiting.erase(next)) {
    ++peer.taken;
    for (const Message& message : next->second) give(peer, message, receiver);
  }
}

void UcxEngine::give(Peer& peer, const Message& message, Receiver& receiver) {
  if (message.kind == MessageKind::kLeft) peer.left = peer.owesSawLeft = true;
  if (message.kind == MessageKind::kSawLeft) peer.sawLeft = true;
  receiver.take(peer.rank, message);
}

void UcxEngine::loseFailed(Receiver& receiver) {
  for (Peer& peer : peers_) {
    if (peer.failure == UCS_OK || peer.gone) continue;
    peer.gone = true;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* closed = ucx_.close(std::exchange(peer.endpoint, nullptr), &params);
    if (closed && !UCS_PTR_IS_ERR(closed)) ucx_.requestFree(closed);  // it ends with the next progress
    // a rank that left ends its connections; the same message at all ranks
    if (!peer.left && !peer.sawLeft)
      receiver.takeAbort(
          {fmt::format("rank {} has died or cannot be reached any more", peer.rank), peer.rank});
  }
}

bool UcxEngine::hasEnded(void*& request, ucs_status_t& status) {
  status = UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;
  if (!request || UCS_PTR_IS_ERR(request)) return true;
  status = ucx_.requestStatus(request);
  if (status == UCS_INPROGRESS) return false;
  ucx_.requestFree(std::exchange(request, nullptr));
  return true;
}

bool UcxEngine::advance(Peer& peer, Outbox& outbox) {
  bool moved = false;
  ucs_status_t status;
  while (!peer.departures.empty() && hasEnded(peer.departures.front().request, status)) {
    if (status != UCS_OK && peer.failure == UCS_OK) peer.failure = status;
    outbox.release(peer.departures.front().room);
    peer.departures.pop_front();
    moved = true;
  }
  while (peer.departures.size() < kDepartures) {
    Batch batch = load(peer, outbox);
    if (batch.empty()) break;
    moved = true;
    if (peer.gone) {
      outbox.release(batch.bytes);
      continue;
    }
    send(peer, batch);
  }
  return moved;
}

// What goes next.
Batch UcxEngine::load(Peer& peer, Outbox& outbox) {
  Batch batch;
  if (peer.abort) {
    const std::string& text = peer.abort->text;
    const size_t bytes = std::min(text.size(), network::kMaxAbortText);
    batch.puts.push_back({kText, 0, bytes, std::make_unique<std::byte[]>(bytes)});
    std::memcpy(batch.puts[0].data.get(), text.data(), bytes);
    batch.after.push_back({MessageKind::kAborted, 0, static_cast<uint64_t>(peer.abort->lost + 1), bytes});
    peer.abort.reset();
    return batch;
  }
  batch = outbox.take(peer.rank, kLimits);
  if (std::exchange(peer.owesSawLeft, false)) batch.after.push_back({MessageKind::kSawLeft, 0, 0, 0});
  return batch;
}

void UcxEngine::send(Peer& peer, const Batch& batch) {
  Departure& departure = peer.departures.emplace_back();
  departure.room = batch.bytes;
  departure.header.source = static_cast<uint32_t>(place_.rank);
  if (!batch.empty()) departure.header.number = ++peer.sent;
  departure.bytes = packFlight(batch, departure.header);
  const ucp_request_param_t params{};
  departure.request = ucx_.send(peer.endpoint, kChannel, &departure.header, sizeof(departure.header),
                                departure.bytes.data(), departure.bytes.size(), &params);
  ++stats_.messages;
  stats_.puts += static_cast<int64_t>(batch.puts.size());
  stats_.putBytes += static_cast<int64_t>(batch.bytes);
  for (const auto* messages : {&batch.before, &batch.after})
    stats_.signals += std::ranges::count_if(
        *messages, [](const Message& message) { return message.kind <= MessageKind::kPost; });
}

void UcxEngine::abort(const Abort& abort) {
  for (Peer& peer : peers_)
    if (!peer.gone) peer.abort = abort;
}

bool UcxEngine::isDone(int rank, Outbox& outbox) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.gone || (arrivals_.empty() && peer.sawLeft && !peer.owesSawLeft && !peer.abort &&
                       peer.departures.empty() && outbox.isEmpty(rank));
}

}  // namespace sluice::ucx
