#include "runtime/workers/worker_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tests/testing/end_of_child.h"
#include "tests/testing/scarce_threads.h"

namespace sluice {
namespace {

// Which of the workers run a job.
std::vector<int> runsOf(Workers& workers) {
  std::vector<int> runs(static_cast<size_t>(workers.count()));
  workers.run([](void* context,
                 int worker) { ++(*static_cast<std::vector<int>*>(context))[static_cast<size_t>(worker)]; },
              &runs);
  return runs;
}

TEST_CASE(
    "leases in turn have one set of threads, leases at the same time one each, and all end with the pool") {
  const int before = threadsOfProcess();
  {
    const auto pool = WorkerPool::of(2, {}, 0);
    CHECK(threadsOfProcess() == before);
    for (int turn = 0; turn < 3; ++turn) {
      const auto lease = *pool->lease();
      CHECK(runsOf(*lease) == std::vector<int>{1, 1});
      CHECK(threadsOfProcess() == before + 1);
    }
    {
      const auto one = *pool->lease(), other = *pool->lease();
      CHECK(runsOf(*one) == std::vector<int>{1, 1});
      CHECK(runsOf(*other) == std::vector<int>{1, 1});
      CHECK(threadsOfProcess() == before + 2);
    }
    const auto again = *pool->lease();
    CHECK(threadsOfProcess() == before + 2);
  }
  CHECK(threadsOfProcess() == before);
}

TEST_CASE(
    "a pool belongs to a number of workers, the units that they may have, and one rank of those that are "
    "threads") {
  const std::vector<int> units = {0, 1, 2}, turned = {1, 2, 0}, fewer = {0, 1}, others = {0, 1, 3};
  const auto pool = WorkerPool::of(2, units, 0);
  CHECK(pool->count() == 2);
  CHECK(WorkerPool::of(2, units, 0) == pool);
  CHECK(WorkerPool::of(2, turned, 0) == pool);
  CHECK(WorkerPool::of(1, units, 0) != pool);
  CHECK(WorkerPool::of(2, units, 1) != pool);
  CHECK(WorkerPool::of(2, fewer, 0) != pool);
  CHECK(WorkerPool::of(2, others, 0) != pool);
  CHECK(WorkerPool::of(2, {}, 0) != pool);
}

TEST_CASE("a pool that nobody has is made anew") {
  const int before = threadsOfProcess();
  for (int round = 0; round < 3; ++round) {
    const auto pool = WorkerPool::of(2, {}, 0);
    CHECK(pool->lease().ok());
    CHECK(threadsOfProcess() == before + 1);
  }
  CHECK(threadsOfProcess() == before);
}

TEST_CASE(
    "a set for which there are too few threads is an error, ends those started, and may be tried again") {
  const auto pool = WorkerPool::of(3, {}, 0);
  const auto first = *pool->lease();
  const int before = threadsOfProcess();
  for (int left = 0; left < 2; ++left) {
    const ScarceThreads scarce(left);
    const auto second = pool->lease();
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().message.find("started " + std::to_string(left) +
                                      " of 2 threads for the workers of a rank") == 0);
    CHECK(threadsOfProcess() == before);
  }
  CHECK(pool->lease().ok());
  CHECK(threadsOfProcess() == before + 2);
}

TEST_CASE("leases of several threads at once never share a set") {
  constexpr int kThreads = 4;
  const auto pool = WorkerPool::of(1, {}, 0);
  std::atomic<bool> shared{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 200; ++turn) {
        const auto lease = *pool->lease();
        struct Use {
          int count = 0;
        } use;
        // a set that two threads had would lose one of the jobs, or run it in the wrong place
        lease->run([](void* context, int) { ++static_cast<Use*>(context)->count; }, &use);
        if (use.count != 1) shared = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(shared);
}

TEST_CASE("a forked child never gets the pools of its parent, even if it is forked while another is made") {
  const auto parents = WorkerPool::of(2, {}, 0);
  static_cast<void>(*parents->lease());
  std::atomic<bool> stop{false};
  std::thread maker([&] {
// AddressSanitizer's allocator is not unlocked in a child that is forked while another thread allocates.
#ifndef __SANITIZE_ADDRESS__
    while (!stop) WorkerPool::of(7, {}, 0);
#endif
  });
  std::vector<int> ends;
  for (int child = 0; child < 20; ++child)
    ends.push_back(endOfChild([&] {
      const auto own = WorkerPool::of(2, {}, 0);
      if (own == parents) return 1;
// ThreadSanitizer cannot start threads in the child of a process that has some.
#ifndef __SANITIZE_THREAD__
      if (runsOf(**own->lease()) != std::vector<int>{1, 1}) return 2;
#endif
      return WorkerPool::of(2, {}, 0) == own ? 0 : 3;
    }));
  stop = true;
  maker.join();
  CHECK(ends == std::vector<int>(20, 0));
  CHECK(WorkerPool::of(2, {}, 0) == parents);
  CHECK(runsOf(**parents->lease()) == std::vector<int>{1, 1});
}

}  // namespace
}  // namespace sluice
