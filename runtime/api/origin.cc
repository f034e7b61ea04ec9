#include "runtime/api/origin.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>

namespace sluice {

int Origin::forks() {
  static std::atomic<int> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
  return count.load(std::memory_order_relaxed) + registered;
}

Status Origin::check(std::string_view what) const {
  if (!isForked()) return {};
  return Error{fmt::format("{} was made by process {}, of which this one was forked: make it again here",
                           what, process_)};
}

}  // namespace sluice
