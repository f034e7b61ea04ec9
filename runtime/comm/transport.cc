#include "runtime/comm/transport.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace sluice {
namespace {

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::wake() {
  // seq_cst on both words: either this thread sees the parked thread, or the parking thread sees the new
  // epoch
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) == 0) return;
  futex(&epoch_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::park(uint32_t seen, int64_t nanoseconds) {
  if (nanoseconds <= 0) return;
  const timespec timeout{static_cast<time_t>(nanoseconds / 1'000'000'000),
                         static_cast<long>(nanoseconds % 1'000'000'000)};
  parked_.fetch_add(1, std::memory_order_seq_cst);  // pairs with the load in wake()
  if (epoch_.load(std::memory_order_seq_cst) == seen) futex(&epoch_, FUTEX_WAIT, seen, &timeout);
  parked_.fetch_sub(1, std::memory_order_relaxed);
}

std::string stoppedRanks(const Transport& transport) {
  std::string text;
  for (int rank = 0; rank < transport.size(); ++rank)
    if (transport.isStopped(rank)) text += fmt::format("; rank {} is stopped", rank);
  return text;
}

}  // namespace sluice
