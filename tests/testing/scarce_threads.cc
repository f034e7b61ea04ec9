#include "tests/testing/scarce_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>

namespace sluice {
namespace {

constexpr int kPlenty = std::numeric_limits<int>::max();
std::atomic<int> left{kPlenty};
std::atomic<int> refusedTries{0};

bool take() {
  if (left.load() == kPlenty) return true;
  if (left.fetch_sub(1) > 0) return true;
  left.fetch_add(1);
  refusedTries.fetch_add(1);
  return false;
}

}  // namespace

ScarceThreads::ScarceThreads(int of) {
  refusedTries.store(0);
  left.store(of);
}
ScarceThreads::~ScarceThreads() { left.store(kPlenty); }
int ScarceThreads::refused() const { return refusedTries.load(); }

int threadsOfProcess() {
  // ThreadSanitizer has a thread of its own, which comes with the first one of a process
  static const bool hasStarted = [] {
    std::thread([] {}).join();
    return true;
  }();
  int fewest = hasStarted ? kPlenty : 0;
  // a thread that has been joined may be listed for a moment
  for (int look = 0; look < 20; ++look) {
    const auto listed = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    fewest = std::min(fewest, static_cast<int>(listed));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fewest;
}

}  // namespace sluice

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  if (!sluice::take()) return EAGAIN;
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}
