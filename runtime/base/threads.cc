#include "runtime/base/threads.h"

#include <fmt/format.h>
#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kNameLength = 15;  // that Linux permits

}  // namespace

Expected<std::thread> startThread(std::string_view name, std::function<void()> body) {
  try {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), fmt::format("sluice-{}", name).substr(0, kNameLength).c_str());
    return thread;
  } catch (const std::system_error& error) {
    return Error{error.code().message()};
  } catch (const std::bad_alloc&) {
    return Error{"out of memory"};
  }
}

Error tooFewThreads(int started, int wanted, const char* what, const Error& why) {
  return Error{fmt::format(
      "started {} of {} threads for {}: {} (limits of processes and of memory count threads, too)", started,
      wanted, what, why.message)};
}

Status runTogether(int count, const char* what, const std::function<void(int)>& body) {
  enum class Go : uint8_t { kWait, kRun, kGiveUp };
  std::mutex mutex;
  std::condition_variable changed;
  Go go = Go::kWait;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  Status status;
  for (int i = 0; i < count && status; ++i) {
    auto thread = startThread(fmt::format("part-{}", i), [&, i] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return go != Go::kWait; });
      const bool run = go == Go::kRun;
      lock.unlock();
      if (run) body(i);
    });
    if (thread)
      threads.push_back(std::move(*thread));
    else
      status = tooFewThreads(i, count, what, thread.error());
  }
  {
    std::lock_guard lock(mutex);
    go = status ? Go::kRun : Go::kGiveUp;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace sluice
