// Backoff: what a thread does that found nothing to run. It looks again soon, then yields, then parks until
// the rank's doorbell rings.
//
// One a waiting thread; not copied.
#pragma once

#include <optional>

#include "runtime/base/clock.h"
#include "runtime/comm/transport.h"

namespace sluice {

class Backoff {
 public:
  Backoff(Doorbell& doorbell, double timeoutSeconds)
      : doorbell_(doorbell), timeout_(limitNanoseconds(timeoutSeconds)) {}

  // Something was run: the next wait starts anew.
  void reset() {
    if (looks_ == 0) return;
    looks_ = 0;
    attention_.reset();
  }

  // Waits a little; `epoch` was read before the looks that found nothing. False: the limit for a wait in
  // `segment` is over. Later segments are given a little more: of ranks that wait for each other in a chain,
  // the one nearest to the cause reports.
  bool wait(uint32_t epoch, int32_t segment);

  // The wait is a long one: the thread parks.
  bool isParking() const { return attention_.has_value(); }

 private:
  Doorbell& doorbell_;
  int64_t timeout_;
  int64_t deadline_ = 0;
  int looks_ = 0;
  std::optional<Attention> attention_;
};

}  // namespace sluice
