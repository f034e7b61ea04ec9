#include "runtime/comm/network/outbox.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/clock.h"

namespace sluice::network {

bool Outbox::put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds) {
  const auto* from = static_cast<const std::byte*>(data);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(limitNanoseconds(seconds));
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, kLargestPut);
    {
      std::unique_lock lock(mutex_);
      const auto fits = [&] { return abandoned_ || held_ == 0 || held_ + part <= room_; };
      if (!released_.wait_until(lock, deadline, fits)) return false;
      if (abandoned_) return true;
      held_ += part;
    }
    Order order{true, {handle, offset + done, part, nullptr}, {}};
    order.put.data = std::make_unique_for_overwrite<std::byte[]>(part);
    std::memcpy(order.put.data.get(), from + done, part);  // outside the lock
    std::lock_guard lock(mutex_);
    queues_[static_cast<size_t>(rank)].push_back(std::move(order));
    done += part;
  }
  return true;
}

void Outbox::post(int rank, const Message& message) {
  std::lock_guard lock(mutex_);
  queues_[static_cast<size_t>(rank)].push_back({false, {}, message});
}

Batch Outbox::take(int rank, const BatchLimits& limits) {
  Batch batch;
  std::lock_guard lock(mutex_);
  auto& queue = queues_[static_cast<size_t>(rank)];
  size_t messages = 0;
  while (!queue.empty()) {
    Order& order = queue.front();
    if (order.isPut) {
      if (batch.bytes >= limits.bytes) break;
      batch.bytes += order.put.bytes;
      batch.puts.push_back(std::move(order.put));
    } else {
      if (messages == limits.messages) break;
      ++messages;
      (batch.puts.empty() ? batch.before : batch.after).push_back(order.message);
    }
    const bool last = !limits.share && messages > 0;
    queue.pop_front();
    if (last) break;
  }
  return batch;
}

void Outbox::release(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    held_ -= std::min(held_, bytes);
  }
  released_.notify_all();
}

void Outbox::abandon() {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
    for (auto& queue : queues_)
      std::erase_if(
          queue, [](const Order& order) { return order.isPut || order.message.kind <= MessageKind::kPost; });
  }
  released_.notify_all();
}

bool Outbox::isEmpty(int rank) {
  std::lock_guard lock(mutex_);
  return queues_[static_cast<size_t>(rank)].empty();
}

}  // namespace sluice::network
