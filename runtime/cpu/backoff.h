// Backoff: how a thread without a ready task waits. It polls, then yields, then parks until the rank's
// doorbell rings.
//
// One per waiting thread; not copied.
#pragma once

#include <optional>

#include "runtime/base/clock.h"
#include "runtime/comm/transport.h"

namespace sluice {

class Backoff {
 public:
  Backoff(Doorbell& doorbell, double timeoutSeconds)
      : doorbell_(doorbell), timeout_(limitNanoseconds(timeoutSeconds)) {}

  // Between two polls of a loop that is short.
  static void pause();

  // Call it after running a task: the next wait starts anew.
  void reset() {
    if (looks_ == 0) return;
    looks_ = 0;
    attention_.reset();
  }

  // Waits a little; read `epoch` before the polls that found nothing. False: the time limit of a wait in
  // `segment` has passed. Later segments get slightly more time, so that in a chain of waiting ranks the one
  // nearest to the cause reports.
  bool wait(uint32_t epoch, int32_t segment);

  // True after a long wait, when the thread parks.
  bool isParking() const { return attention_.has_value(); }

 private:
  Doorbell& doorbell_;
  int64_t timeout_;
  int64_t deadline_ = 0;
  int looks_ = 0;
  std::optional<Attention> attention_;
};

}  // namespace sluice
