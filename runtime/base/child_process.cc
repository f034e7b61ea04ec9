#include "runtime/base/child_process.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace sluice {

Expected<pid_t> startChild(const std::function<int()>& body, int atEnd) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Error{fmt::format("cannot start a process: {}", std::strerror(errno))};
  if (child > 0) return child;
  // before the look at the parent: whichever way it ends, this process ends too
  prctl(PR_SET_PDEATHSIG, atEnd);
  _exit(getppid() == parent ? body() : kNotStarted);
}

int awaitChild(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

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
