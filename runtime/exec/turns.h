// Turns: serves requests in the order in which they were made.
//
// Thread-safe. One thread awaits each ticket, and passes the turn on when it is done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice {

class Turns {
 public:
  uint64_t take();
  // Returns when all earlier tickets have been passed on.
  void await(uint64_t ticket);
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  uint64_t next_ = 0;
  uint64_t now_ = 0;
  int waiting_ = 0;
};

}  // namespace sluice
