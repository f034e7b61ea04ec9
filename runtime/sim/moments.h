// What is to come in a simulation, earliest first.
//
// Each place has a queue of its own, small enough for the caches, and a tree of winners says whose first is
// the earliest: one queue of all would miss a cache at each of its levels.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "runtime/sim/sim_result.h"

namespace sluice {

// Something that ends. Those of one time are handled in the order in which they were made.
struct Moment {
  enum class Kind : uint8_t { kTask, kHead, kArrival };
  SimTime time = 0;
  int64_t number = 0;
  Kind kind = Kind::kTask;
  uint32_t rank = 0;   // the place of: kTask: whose worker it is; else the receiver
  uint32_t index = 0;  // kTask: the worker; else the message
  bool operator>(const Moment& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

// Value type.
class Moments {
 public:
  // At least one place.
  explicit Moments(size_t places) : queues_(places), firsts_(places, kNone), winners_(2 * places) {
    for (size_t i = 0; i < places; ++i) winners_[places + i] = static_cast<uint32_t>(i);
    for (size_t node = places - 1; node > 0; --node) winners_[node] = winners_[2 * node];
  }

  bool empty() const { return queues_[winners_[1]].empty(); }
  const Moment& first() const { return queues_[winners_[1]].top(); }

  void push(const Moment& moment) {
    queues_[moment.rank].push(moment);
    if (queues_[moment.rank].top().number == moment.number) settle(moment.rank);
  }

  Moment pop() {
    Queue& queue = queues_[winners_[1]];
    const Moment moment = queue.top();
    queue.pop();
    settle(moment.rank);
    return moment;
  }

 private:
  using Queue = std::priority_queue<Moment, std::vector<Moment>, std::greater<>>;
  struct Key {
    SimTime time;
    int64_t number;
  };
  static constexpr Key kNone = {std::numeric_limits<SimTime>::max(), std::numeric_limits<int64_t>::max()};

  // The place of two whose first is earlier.
  uint32_t earlier(uint32_t a, uint32_t b) const {
    const Key &x = firsts_[a], &y = firsts_[b];
    return (x.time != y.time ? x.time < y.time : x.number <= y.number) ? a : b;
  }

  // After the first of a place has changed.
  void settle(uint32_t place) {
    const Queue& queue = queues_[place];
    firsts_[place] = queue.empty() ? kNone : Key{queue.top().time, queue.top().number};
    for (size_t node = (queues_.size() + place) / 2; node > 0; node /= 2)
      winners_[node] = earlier(winners_[2 * node], winners_[2 * node + 1]);
  }

  std::vector<Queue> queues_;
  std::vector<Key> firsts_;        // of the queues, which lie side by side
  std::vector<uint32_t> winners_;  // places: at n the winner of 2 n and 2 n + 1; leaves fill the second half
};

}  // namespace sluice
