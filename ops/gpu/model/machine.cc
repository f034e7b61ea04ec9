#include "ops/gpu/model/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "ops/gpu/model/calls.h"

namespace sluice::gpu::model {
namespace {

constexpr int64_t kTurn = 20;          // ns that a turn takes
constexpr int64_t kDead = 60'000'000;  // ns without a change, after which none is expected
constexpr uint64_t kTurnsToLook = 64;  // between two looks at those that wait
constexpr int kRegisters = 65536;      // of an SM

Machine* current = nullptr;
std::vector<Region> registered;  // for the next run

// The regions by address; those that share bytes as one.
std::vector<Region> joined(std::vector<Region> regions) {
  std::ranges::sort(regions, std::less(), &Region::data);
  std::vector<Region> all;
  for (Region& each : regions)
    if (all.empty() || each.data >= all.back().data + all.back().bytes)
      all.push_back(std::move(each));
    else
      all.back().bytes =
          std::max(all.back().bytes, static_cast<size_t>(each.data - all.back().data) + each.bytes);
  return all;
}

int alignedRegisters(int threads) { return kRegisters / threads / 8 * 8; }

}  // namespace

Machine& machine() { return *current; }

void learn(Knowledge& known, const Knowledge& more) {
  if (known.size() < more.size()) known.resize(more.size());
  for (size_t b = 0; b < more.size(); ++b) known[b] = std::max(known[b], more[b]);
}

void KnownOrder::releaseBy(const Thread& thread) {
  release();
  learn(known_, thread.known);
}

void KnownOrder::acquireBy(Thread& thread) {
  acquire();
  learn(thread.known, known_);
}

Machine::Machine(const Launch& of, std::vector<Region> memory)
    : launch(of),
      regions(joined(std::move(memory))),
      random(static_cast<uint32_t>(of.seed * 2654435761U + 1)) {
  for (int b = 0; b < launch.blocks; ++b) {
    auto block = std::make_unique<Block>();
    block->memory.resize(launch.sharedBytes + 1024);
    for (size_t at = 0; at + 4 <= block->memory.size(); at += 4) {
      const auto word = static_cast<uint32_t>(random());
      std::memcpy(&block->memory[at], &word, sizeof(word));
    }
    const auto address = reinterpret_cast<uintptr_t>(block->memory.data());
    block->shared = block->memory.data() + (1024 - address % 1024) % 1024;
    for (int w = 0; w < launch.threads / 32; ++w) block->warps.push_back(std::make_unique<WarpState>());
    for (int g = 0; g < launch.threads / 128; ++g) {
      block->warpgroups.push_back(std::make_unique<WarpgroupState>());
      block->registers.push_back(alignedRegisters(launch.threads));
    }
    block->freeRegisters = kRegisters - launch.threads * alignedRegisters(launch.threads);
    blocks.push_back(std::move(block));
  }
}

std::string Machine::run(const std::function<void()>& kernel) {
  begin.release();
  for (int b = 0; b < launch.blocks; ++b)
    for (int t = 0; t < launch.threads; ++t) {
      auto thread = std::make_unique<Thread>();
      thread->block = b;
      thread->index = t;
      thread->known.resize(static_cast<size_t>(launch.blocks));
      thread->copied.resize(static_cast<size_t>(launch.blocks));
      runnable_.push_back(static_cast<int>(threads.size()));
      Thread* const own = thread.get();
      const auto work = [this, own, &kernel] {
        begin.acquire();
        try {
          kernel();
          endThread(*own);
        } catch (const Abandoned&) {
          // the run ends
        }
        end.release();
        own->done = true;
      };
      thread->fiber.start(work, threads.size());
      threads.push_back(std::move(thread));
    }
  current = this;
  const Quiet quiet;
  while (problem.empty() && takeTurn()) {
  }
  if (problem.empty()) finish();
  for (size_t t = 0; t < threads.size(); ++t) {
    if (threads[t]->done) continue;
    running = static_cast<int>(t);
    threads[t]->fiber.abandon();
  }
  current = nullptr;
  end.acquire();
  return problem;
}

// It is called for a thread whose kernel has returned.
void Machine::endThread(const Thread& thread) {
  const Quiet quiet;
  for (const auto& group : thread.storeGroups)
    for (const auto& store : group)
      if (!store->isRead)
        fail("ends while a copy still reads its shared memory: waitStoresRead() is missing");
  progress();
}

// False: all threads have ended.
bool Machine::takeTurn() {
  now += kTurn;
  if (++turns_ % kTurnsToLook == 0 || runnable_.empty()) wakeReady();
  if (below(8) == 0 && happenOne()) return true;
  if (runnable_.empty()) {
    if (happenOne()) return true;
    if (blocked_.empty()) return false;
    int64_t next = kNever;
    for (const Blocked& each : blocked_) next = std::min(next, each.wakeAt);
    if (next == kNever || now - movedAt > kDead) {
      problem = describeDeadlock();
      return false;
    }
    now = std::max(now, next);
    wakeReady();
    return true;
  }
  auto place = static_cast<size_t>(below(static_cast<int>(runnable_.size())));
  if (isLate(runnable_[place])) place = static_cast<size_t>(below(static_cast<int>(runnable_.size())));
  running = runnable_[place];
  Thread& thread = *threads[static_cast<size_t>(running)];
  thread.fiber.resume();
  running = -1;
  if (!thread.done && !thread.isWaiting) return true;
  runnable_[place] = runnable_.back();
  runnable_.pop_back();
  return true;
}

// Warpgroups fall behind each other: one of them mostly lets others go first, for some time.
bool Machine::isLate(int thread) {
  if (turns_ >= redrawAt_) {
    late_ = below(static_cast<int>(threads.size()) / 128);
    redrawAt_ = turns_ + (uint64_t{1024} << below(8));
  }
  return thread / 128 == late_ && below(8) != 0;
}

void Machine::wakeReady() {
  std::erase_if(blocked_, [&](const Blocked& each) {
    if (!each.ready.holds() && each.wakeAt > now) return false;
    threads[static_cast<size_t>(each.thread)]->isWaiting = false;
    runnable_.push_back(each.thread);
    return true;
  });
}

bool Machine::happenOne() {
  if (operations.empty()) return false;
  const size_t first = static_cast<size_t>(below(static_cast<int>(operations.size())));
  for (size_t i = 0; i < operations.size(); ++i) {
    const size_t at = (first + i) % operations.size();
    if (operations[at].possible && !operations[at].possible()) continue;
    const Operation operation = std::move(operations[at]);
    operations.erase(operations.begin() + static_cast<ptrdiff_t>(at));
    operation.happen();
    progress();
    return true;
  }
  return false;
}

// What was asked for happens, though nobody waits for it.
void Machine::finish() {
  while (problem.empty() && happenOne()) {
  }
}

void Machine::yield() {
  if (below(4) == 0) self().fiber.leave();
}

void Machine::wait(std::string_view what, const Condition& ready, int64_t wakeAt) {
  if (ready.holds()) return yield();
  Thread& own = self();
  own.waitsFor = what;
  own.isWaiting = true;
  blocked_.push_back({running, wakeAt, ready});
  own.fiber.leave();
  own.waitsFor = {};
}

uint64_t Machine::meet(Meeting& meeting, int expected, std::string_view what, bool isOrdered) {
  const uint64_t generation = meeting.generation;
  if (meeting.arrived > 0 && meeting.what != what)
    fail(fmt::format("calls {} where others of its warp call {}", what, meeting.what));
  meeting.what = what;
  KnownOrder& order = meeting.order[generation % 2];
  if (isOrdered) order.releaseBy(self());
  if (++meeting.arrived == expected) {
    meeting.arrived = 0;
    ++meeting.generation;
    progress();
    yield();
  } else {
    wait(what, {.number = &meeting.generation, .mask = UINT64_MAX, .before = generation});
  }
  if (isOrdered) order.acquireBy(self());
  self().apartSince = {};
  return generation;
}

uint64_t Machine::align(std::string_view what, bool isOrdered) {
  return meet(block().warps[static_cast<size_t>(self().index / 32)]->meeting, 32, what, isOrdered);
}

void Machine::checkTogether(std::string_view what) {
  if (self().apartSince.empty()) return;
  fail(fmt::format("calls {} after {} that each lane may leave at another time: syncWarp() is missing", what,
                   self().apartSince));
}

void Machine::post(std::function<bool()> possible, std::function<void()> happen) {
  operations.push_back({std::move(possible), std::move(happen)});
}

void Machine::fail(const std::string& what) {
  note(fmt::format("{} {}", where(self()), what));
  throw Abandoned();
}

void Machine::note(const std::string& what) {
  if (problem.empty()) problem = what;
}

std::string Machine::where(const Thread& thread) const {
  return fmt::format("block {}, thread {}:", thread.block, thread.index);
}

// What a thread waits for, in words; empty: for nothing.
std::string Machine::describeThreadWait(const Thread& thread) const {
  std::string what(thread.waitsFor);
  if (!thread.waitsForPhase) return what;
  const Block& block = *blocks[static_cast<size_t>(thread.block)];
  const BarrierState& state = *block.barriers.at(thread.waitsForPhase);
  return what + fmt::format(" of parity {} of {} ({} arrivals and {} bytes are missing)", state.phase % 2,
                            barrierName(block, thread.waitsForPhase), state.pending, state.bytes);
}

// By block: "threads 0 to 31 wait for a phase of barrier 64", equal waits of neighbours as one.
std::string Machine::describeDeadlock() const {
  std::string text = "no thread goes on";
  for (size_t i = 0; i < threads.size();) {
    const std::string what = describeThreadWait(*threads[i]);
    size_t end = i + 1;
    while (end < threads.size() && threads[end]->block == threads[i]->block &&
           describeThreadWait(*threads[end]) == what)
      ++end;
    if (!what.empty())
      text += fmt::format("; block {}, threads {} to {} wait for {}", threads[i]->block, threads[i]->index,
                          threads[end - 1]->index, what);
    i = end;
  }
  return text;
}

std::string run(const Launch& launch, const std::function<void()>& kernel) {
  if (launch.blocks < 1 || launch.threads < 128 || launch.threads > 1024 || launch.threads % 128 != 0)
    return "a launch of no blocks, or of blocks that are not 1 to 8 warpgroups";
  std::string problem;
  {
    Machine machine(launch, std::exchange(registered, {}));
    problem = machine.run(kernel);
  }
  Identity::renew();
  return problem;
}

void registerGlobal(const void* data, size_t bytes) {
  registered.push_back({static_cast<const std::byte*>(data), bytes, {}});
}

int threadIndex() {
  const Quiet quiet;
  return machine().self().index;
}
int blockIndex() {
  const Quiet quiet;
  return machine().self().block;
}
int blockCount() {
  const Quiet quiet;
  return machine().launch.blocks;
}
std::byte* sharedMemory() {
  const Quiet quiet;
  return machine().block().shared;
}
uint64_t globalTimer() {
  const Quiet quiet;
  machine().yield();
  machine().self().apartSince = "globalTimer()";
  return static_cast<uint64_t>(machine().now);
}
void sleepFor(uint32_t nanoseconds) {
  const Quiet quiet;
  Machine& m = machine();
  if (nanoseconds > 1'000'000) m.fail("sleeps longer than a millisecond");
  m.wait("the end of its sleep", {}, m.now + nanoseconds);
}

void trap(const char* why) {
  const Quiet quiet;
  machine().fail(why);
}

}  // namespace sluice::gpu::model
