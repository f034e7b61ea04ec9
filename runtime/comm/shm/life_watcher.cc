#include "runtime/comm/shm/life_watcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "runtime/base/threads.h"

namespace sluice {
namespace {

// Blocks all signals: the program's signal handlers must run in the program's own threads.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

LifeWatcher::LifeWatcher(std::vector<LifeLine> lines, Ended ended)
    : lines_(std::move(lines)), ended_(std::move(ended)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Expected<std::unique_ptr<LifeWatcher>> LifeWatcher::start(std::vector<LifeLine> lines, Ended ended) {
  std::unique_ptr<LifeWatcher> watcher(new LifeWatcher(std::move(lines), std::move(ended)));
  if (!watcher->stop_) return Error{fmt::format("cannot watch other processes: {}", std::strerror(errno))};
  const NoSignals inherited;
  auto thread = startThread("watch", [self = watcher.get()] { self->watch(); });
  if (!thread) return Error{fmt::format("cannot watch other processes: {}", thread.error().message)};
  watcher->thread_ = std::move(*thread);
  return watcher;
}

LifeWatcher::~LifeWatcher() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void LifeWatcher::watch() {
  std::vector<pollfd> pollers{{stop_.get(), POLLIN, 0}};
  for (const LifeLine& line : lines_) pollers.push_back({line.file.get(), POLLIN, 0});
  while (true) {
    // interrupted only by a debugger: no signal reaches this thread
    if (poll(pollers.data(), pollers.size(), -1) < 0) continue;
    if (pollers[0].revents) return;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (!pollers[1 + i].revents) continue;
      pollers[1 + i].fd = -1;  // no longer watched
      ended_(lines_[i].rank);
    }
  }
}

}  // namespace sluice
