// Ranks joined through shared memory, as processes or as threads of the test.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/comm/shm/shared_memory.h"
#include "tests/testing/processes.h"

namespace sluice {

// A name that no other job of this machine has. Not made of the process number: tests that run at the same
// time may number their processes separately but share the names of jobs.
inline std::string newJobName() {
  std::random_device random;
  return fmt::format("test-{:08x}{:08x}", random(), random());
}

// What a rank does; returns "" if everything is right.
using JoinedBody = std::function<std::string(Transport& transport)>;

inline std::string joinAndRun(const SharedMemoryJob& job, const JoinedBody& body) {
  auto transport = joinSharedMemory(job);
  return transport ? body(**transport) : "cannot join: " + transport.error().message;
}

inline std::vector<std::string> runProcesses(int size, const JoinedBody& body) {
  const std::string name = newJobName();
  Processes processes(size, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = size, .timeoutSeconds = 30}, body);
  });
  std::vector<std::string> texts;
  for (const ChildEnd& end : processes.wait())
    texts.push_back(end.returned && end.status == 0
                        ? end.text
                        : fmt::format("did not return (late: {}, signal {}, status {})", end.late, end.signal,
                                      end.status));
  return texts;
}

inline std::vector<std::string> runThreads(int size, const JoinedBody& body) {
  const std::string name = newJobName();
  std::vector<std::string> texts(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      texts[rank] = joinAndRun({.name = name, .rank = rank, .size = size, .timeoutSeconds = 30}, body);
    });
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// Waits at the rank's doorbell until `ready()`, which reads seq_cst words, or until some seconds have passed.
template <class Ready>
bool parkUntil(Transport& transport, const Ready& ready, double seconds = 30) {
  const Attention attention(transport.doorbell());
  const int64_t deadline = monotonicNanoseconds() + static_cast<int64_t>(seconds * 1e9);
  while (monotonicNanoseconds() < deadline) {
    const uint32_t epoch = transport.doorbell().epoch();
    if (ready()) return true;
    transport.doorbell().park(epoch, 100'000'000);
  }
  return ready();
}

}  // namespace sluice
