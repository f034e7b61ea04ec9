// LifeWatcher: a thread of this process that notices the end of other processes.
//
// It sleeps until one ends, handles no signals, and ends with the object. A forked child does not have the
// thread: there the object must not be destroyed.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/shm/rendezvous.h"

namespace sluice {

class LifeWatcher {
 public:
  // Called by the thread once for each rank whose process has ended.
  using Ended = std::function<void(int rank)>;

  static Expected<std::unique_ptr<LifeWatcher>> start(std::vector<LifeLine> lines, Ended ended);
  ~LifeWatcher();
  LifeWatcher(const LifeWatcher&) = delete;
  LifeWatcher& operator=(const LifeWatcher&) = delete;

 private:
  LifeWatcher(std::vector<LifeLine> lines, Ended ended);
  void watch();

  std::vector<LifeLine> lines_;
  Ended ended_;
  FileDescriptor stop_;  // readable when the thread must end
  std::thread thread_;
};

}  // namespace sluice
