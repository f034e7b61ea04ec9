#include "runtime/comm/mpi/call_limit.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"

namespace sluice::mpi {
namespace {

// On a busy machine MPI_Init alone takes several seconds.
constexpr double kOwnSeconds = 20;

// The rank from the launcher's variables, because MPI has none before it starts.
std::string rankByLauncher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return fmt::format("rank {}", value);
  return "a rank";
}

}  // namespace

CallLimit::CallLimit(double seconds) : seconds_(seconds + kOwnSeconds), rank_(rankByLauncher()) {}

Expected<std::unique_ptr<CallLimit>> CallLimit::start(double seconds) {
  std::unique_ptr<CallLimit> limit(new CallLimit(seconds));
  auto thread = startThread("limit", [raw = limit.get()] { raw->watch(); });
  if (!thread) return Error{fmt::format("no thread to watch the calls of MPI: {}", thread.error().message)};
  limit->thread_ = std::move(*thread);
  return limit;
}

CallLimit::~CallLimit() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CallLimit::enter(const char* phase) {
  {
    std::lock_guard lock(mutex_);
    phase_ = phase;
    ++phases_;
  }
  changed_.notify_all();
}

void CallLimit::watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const auto changed = [this, phase = phases_] { return over_ || phases_ != phase; };
    if (!phase_) {
      changed_.wait(lock, changed);
      continue;
    }
    if (changed_.wait_for(lock, std::chrono::nanoseconds(limitNanoseconds(seconds_)), changed)) continue;
    std::fprintf(stderr, "error: %s: waited %g s in %s; another rank is stopped, or did not start\n",
                 rank_.c_str(), seconds_, phase_);
    std::fflush(nullptr);
    std::_Exit(1);
  }
}

}  // namespace sluice::mpi
