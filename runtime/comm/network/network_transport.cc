#include "runtime/comm/network/network_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/comm/shm/shared_memory.h"

namespace sluice::network {
namespace {

constexpr uint64_t kNoMemory = (uint64_t{1} << 48) - 1;  // replaces the address if there is no memory

constexpr double kGraceSeconds = 2;

std::atomic_ref<uint64_t> wordAt(std::byte* address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address));
}

}  // namespace

Expected<std::unique_ptr<Transport>> joinNeighbours(const Place& place, const std::string& name,
                                                    double timeoutSeconds) {
  const int ranks = static_cast<int>(place.localRanks.size());
  if (ranks == 1) return std::unique_ptr<Transport>();
  auto localTransport = joinSharedMemory({name, place.localRank, ranks, timeoutSeconds});
  if (!localTransport)
    return Error{fmt::format("between the ranks of one machine: {}", localTransport.error().message)};
  return localTransport;
}

NetworkTransport::NetworkTransport(const Place& place, std::string_view kind,
                                   std::unique_ptr<Transport> localTransport, double timeoutSeconds)
    : place_(place),
      kind_(kind),
      localTransport_(std::move(localTransport)),
      timeoutSeconds_(timeoutSeconds),
      neighbourRanks_(static_cast<size_t>(place.size), -1),
      allocations_(kMaxAllocations),
      left_(static_cast<size_t>(place.size)),
      peerAllocations_(static_cast<size_t>(place.size)) {
  if (!localTransport_) return;
  for (size_t i = 0; i < place.localRanks.size(); ++i)
    neighbourRanks_[static_cast<size_t>(place.localRanks[i])] = static_cast<int>(i);
}

Expected<std::unique_ptr<Transport>> NetworkTransport::create(std::unique_ptr<Engine> engine,
                                                              const Place& place,
                                                              std::unique_ptr<Transport> localTransport,
                                                              double timeoutSeconds) {
  std::unique_ptr<NetworkTransport> transport(
      new NetworkTransport(place, engine->kind(), std::move(localTransport), timeoutSeconds));
  auto courier = Courier::start(std::move(engine), place, *transport);
  if (!courier) return courier.error();
  transport->courier_ = std::move(*courier);
  return {std::unique_ptr<Transport>(std::move(transport))};
}

NetworkTransport::~NetworkTransport() {
  if (isInherited()) static_cast<void>(courier_.release());  // a forked child has no such thread
  if (!courier_) return;
  // a lost rank will not leave: the other ranks get time to report it
  courier_->finish(lostRank() < 0 ? timeoutSeconds_ : std::min(timeoutSeconds_, kGraceSeconds));
  courier_.reset();  // before the memory that its engine uses
}

Status NetworkTransport::reserve(Allocation& allocation, size_t bytes) {
  if (localTransport_) {
    auto handle = localTransport_->allocate(bytes);
    if (!handle) return handle.error();
    allocation.neighbour = *handle;
    allocation.data = localTransport_->local(*handle);
  } else {
    auto memory = Reservation::reserve(bytes);
    if (!memory) return memory.error();
    allocation.own = std::move(*memory);
    allocation.data = allocation.own.data();
  }
  allocation.bytes = bytes;
  return courier_->attach(allocation.data, bytes, timeoutSeconds_);
}

// Sizes first: after that all ranks agree on the rest, and on the allocations of the local transport.
Expected<SymmetricHandle> NetworkTransport::allocate(size_t bytes) {
  if (allocated_ == kMaxAllocations)
    return Error{fmt::format("more than {} symmetric allocations", kMaxAllocations)};
  const uint32_t index = allocated_++;
  if (Status all = exchange(MessageKind::kAllocate, index, bytes); !all) return all.error();
  if (Status same = compareBytes(index, bytes); !same) return same.error();
  const Status own = reserve(allocations_[index], bytes);
  const uint64_t address = own ? reinterpret_cast<uint64_t>(allocations_[index].data) : kNoMemory;
  const Status all = exchange(MessageKind::kAddress, index, address);
  if (!own) return own.error();
  if (!all) return all.error();
  std::lock_guard lock(mutex_);
  for (int other = 0; other < size(); ++other)
    if (other != rank() && peerAllocations_[static_cast<size_t>(other)].addresses[index] == kNoMemory)
      return Error{
          fmt::format("rank {} has no memory for symmetric allocation {} of {} bytes", other, index, bytes)};
  return SymmetricHandle{index};
}

Status NetworkTransport::exchange(MessageKind kind, uint32_t index, uint64_t value) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) courier_->post(peer, {kind, index, 0, value});
  const int64_t deadline = monotonicNanoseconds() + limitNanoseconds(timeoutSeconds_);
  for (int peer = 0; peer < size(); ++peer) {
    const PeerAllocations& announced = peerAllocations_[static_cast<size_t>(peer)];
    const auto& values = kind == MessageKind::kAllocate ? announced.bytes : announced.addresses;
    std::unique_lock lock(mutex_);
    while (peer != rank() && values.size() <= index) {
      lock.unlock();
      if (Status there = checkThere(peer, index, deadline); !there) return there;
      lock.lock();
      if (values.size() <= index) announcedMore_.wait_for(lock, std::chrono::milliseconds(50));
    }
  }
  return {};
}

Status NetworkTransport::checkThere(int peer, uint32_t index, int64_t deadline) {
  if (isAborted()) return Error{abortMessage()};
  if (hasLeft(peer))
    abort(fmt::format("rank {}: rank {} has left before symmetric allocation {}", rank(), peer, index));
  else if (monotonicNanoseconds() > deadline)
    abort(fmt::format("rank {}: waited {:g} s for rank {} to make symmetric allocation {}", rank(),
                      timeoutSeconds_, peer, index));
  else
    return {};
  return Error{abortMessage()};
}

// All ranks see the same sizes and return the same error.
Status NetworkTransport::compareBytes(uint32_t index, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto workspaceBytes = [&](int of) {
    return of == rank() ? bytes : peerAllocations_[static_cast<size_t>(of)].bytes[index];
  };
  for (int other = 1; other < size(); ++other)
    if (workspaceBytes(other) != workspaceBytes(0))
      return Error{fmt::format("symmetric allocation {} has {} bytes at rank 0 and {} at rank {}", index,
                               workspaceBytes(0), workspaceBytes(other), other)};
  return {};
}

std::byte* NetworkTransport::direct(int rank, SymmetricHandle handle) {
  if (rank == place_.rank) return local(handle);
  const int neighbour = neighbourRank(rank);
  return neighbour < 0 ? nullptr : localTransport_->direct(neighbour, allocations_[handle.index].neighbour);
}

void NetworkTransport::put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) {
  assert(offset + bytes <= allocations_[handle.index].bytes);
  if (bytes == 0) return;
  if (std::byte* reachable = direct(rank, handle)) {
    std::memcpy(reachable + offset, data, bytes);
    return;
  }
  if (!courier_->put(rank, handle.index, offset, data, bytes, timeoutSeconds_))
    abort(fmt::format("rank {}: cannot send to rank {}: the {} MiB send queue did not drain within {:g} s",
                      place_.rank, rank, Outbox::kRoom >> 20, timeoutSeconds_));
}

void NetworkTransport::signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) {
  if (const int neighbour = neighbourRank(rank); neighbour >= 0)
    return localTransport_->signal(neighbour, allocations_[handle.index].neighbour, offset, n);
  const Message message{MessageKind::kSignal, handle.index, offset, n};
  if (rank == place_.rank) return applyWord(rank, message);
  courier_->post(rank, message);
}

void NetworkTransport::post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) {
  if (const int neighbour = neighbourRank(rank); neighbour >= 0)
    return localTransport_->post(neighbour, allocations_[handle.index].neighbour, offset, value);
  const Message message{MessageKind::kPost, handle.index, offset, value};
  if (rank == place_.rank) return applyWord(rank, message);
  courier_->post(rank, message);
}

void NetworkTransport::applyWord(int source, const Message& message) {
  std::byte* const address = memory(message.handle, message.offset, sizeof(uint64_t));
  if (!address || message.offset % sizeof(uint64_t) != 0) {
    takeAbort(
        {fmt::format("rank {}: rank {} writes a word to byte {} of symmetric allocation {}, where none is",
                     rank(), source, message.offset, message.handle),
         -1});
    return;
  }
  const auto word = wordAt(address);
  // pairs with the load in EventCounter::isComplete() and with the loads of waiting threads
  if (message.kind == MessageKind::kSignal)
    word.fetch_add(message.value, std::memory_order_seq_cst);
  else
    word.store(message.value, std::memory_order_seq_cst);
  doorbell().ring();
}

void NetworkTransport::take(int source, const Message& message) {
  switch (message.kind) {
    case MessageKind::kSignal:
    case MessageKind::kPost:
      return applyWord(source, message);
    case MessageKind::kAddress:
    case MessageKind::kAllocate: {
      std::lock_guard lock(mutex_);
      PeerAllocations& announced = peerAllocations_[static_cast<size_t>(source)];
      auto& values = message.kind == MessageKind::kAllocate ? announced.bytes : announced.addresses;
      values.resize(std::max<size_t>(values.size(), std::min(message.handle, kMaxAllocations - 1) + 1));
      values[std::min(message.handle, kMaxAllocations - 1)] = message.value;
      announcedMore_.notify_all();
      return;
    }
    case MessageKind::kLeft:
      left_[static_cast<size_t>(source)].store(true, std::memory_order_release);  // pairs with hasLeft()
      doorbell().ring();
      return;
    case MessageKind::kAborted:
    case MessageKind::kSawLeft:
      return;  // handled by the engine
  }
  takeAbort({fmt::format("rank {}: rank {} sent a message of kind {}", rank(), source,
                         static_cast<int>(message.kind)),
             -1});
}

std::byte* NetworkTransport::memory(uint32_t handle, uint64_t offset, uint64_t bytes) {
  const size_t found = handle < kMaxAllocations ? allocations_[handle].bytes : 0;
  return offset <= found && bytes <= found - offset ? allocations_[handle].data + offset : nullptr;
}

void NetworkTransport::takeAbort(const Abort& abort) {
  {
    std::lock_guard lock(mutex_);
    // a neighbour may already have aborted the local transport with the same message, which does not name the
    // lost rank
    if (abort.lost >= 0 && abort.lost < size()) lost_.store(abort.lost, std::memory_order_relaxed);
    if (!isAborted()) {
      if (localTransport_) localTransport_->abort(abort.text);
      abort_ = abort;
      aborted_.store(true, std::memory_order_seq_cst);  // pairs with isAborted()
    }
  }
  doorbell().ring();
  announcedMore_.notify_all();
}

void NetworkTransport::abort(const std::string& message) {
  takeAbort({message, -1});
  courier_->wake();
}

bool NetworkTransport::isAborted() const {
  return localTransport_ ? localTransport_->isAborted() : aborted_.load(std::memory_order_seq_cst);
}

std::string NetworkTransport::abortMessage() const {
  if (!localTransport_) {
    std::lock_guard lock(mutex_);
    return abort_.text;
  }
  // the local transport only numbers the ranks of this machine
  const int lost = localTransport_->lostRank();
  const int world = lost < 0 ? lost : place_.localRanks[static_cast<size_t>(lost)];
  return world == lost ? localTransport_->abortMessage() : fmt::format("rank {} has died", world);
}

int NetworkTransport::lostRank() const {
  const int neighbour = localTransport_ ? localTransport_->lostRank() : -1;
  return neighbour >= 0 ? place_.localRanks[static_cast<size_t>(neighbour)]
                        : lost_.load(std::memory_order_relaxed);
}

std::optional<Abort> NetworkTransport::aborted() {
  if (!isAborted()) return std::nullopt;
  return Abort{abortMessage(), lostRank()};
}

bool NetworkTransport::hasLeft(int rank) const {
  return left_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
}

}  // namespace sluice::network
