// The machine under the model: blocks, threads, who goes on, and operations that happen by themselves.
//
// Everything runs in one thread of the process. Members are open to the parts of the model (memory.cc,
// barriers.cc, copies.cc, products.cc), which belong together.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/gpu/model/fiber.h"
#include "ops/gpu/model/launch.h"
#include "ops/gpu/model/records.h"
#include "ops/gpu/model/sanitizers.h"

namespace sluice::gpu::model {

inline constexpr int64_t kNever = INT64_MAX;

struct Thread;

// Plain stores that are known to have happened: by block of the storing thread, the Machine::epoch of the
// last one.
using Knowledge = std::vector<uint64_t>;
void learn(Knowledge& known, const Knowledge& more);

// A point of order that also hands on what is known. A value that must not move while it is in use.
class KnownOrder : public Order {
 public:
  void releaseBy(const Thread& thread);
  void acquireBy(Thread& thread);

 private:
  Knowledge known_;
};

// Threads that come together: each waits until `arrived` of them are there.
struct Meeting {
  int arrived = 0;
  uint64_t generation = 0;
  std::string_view what;            // they came for; a waiting thread keeps the characters
  std::array<KnownOrder, 2> order;  // by generation
};

struct WarpState {
  Meeting meeting;
  std::array<std::array<uint32_t, 32>, 2> values{};  // by generation
};

// A product that all threads of a warpgroup issue: the n-th of each is the same.
struct Product {
  int columns = 0;
  Major majorA = Major::kK, majorB = Major::kK;
  uint64_t a = 0, b = 0;
  bool add = false;
  int issued = 0;                   // threads that have
  uint64_t seenEpoch = UINT64_MAX;  // stores to shared memory that all of them have fenced since
  std::array<float*, 128> sums{};   // by thread: its values while they are in flight
  std::unique_ptr<Order> issue = std::make_unique<Order>(), end = std::make_unique<Order>();
};

struct WarpgroupState {
  std::deque<Product> products;        // that some thread has not waited for
  uint64_t first = 0;                  // number of the first of them
  uint64_t next = 0;                   // number of the next to be done
  std::array<uint64_t, 128> waited{};  // by thread: products that it knows to be done
  Actor multiplies;                    // the products, one after the other
};

// Sums that a thread must not touch while they are in flight.
struct FlyingSum {
  float* place = nullptr;
  std::vector<float> values;
  uint64_t last = 0;  // the last product that adds to it
};

// A copy from shared memory: first it is read, then written.
struct Store {
  bool isRead = false, isWritten = false;
  std::unique_ptr<Order> read = std::make_unique<Order>(), written = std::make_unique<Order>();
};

// What lets a waiting thread go on: a number that others change, or a function that says so, which the thread
// keeps. A number costs less, and most threads wait for one.
struct Condition {
  const uint64_t* number = nullptr;  // null: `function` says so
  uint64_t mask = 0, before = 0;     // it holds as soon as these bits of *number are no longer `before`
  const std::function<bool()>* function = nullptr;  // null, without a number: nothing does

  bool holds() const { return number ? (*number & mask) != before : function && (*function)(); }
};

// Sixteen bytes on their way to shared memory; from nowhere: zeros.
struct Part {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
};

struct Thread {
  int block = 0, index = 0;
  Fiber fiber;
  bool done = false;
  bool isWaiting = false;
  std::string_view waitsFor;               // empty: for nothing
  const Barrier* waitsForPhase = nullptr;  // null: for no end of a phase

  // The call that may have let it go on without its warp: its answer depends on when a lane asks. Empty: the
  // warp has met since.
  std::string_view apartSince;

  uint64_t proxyFences = 0;       // number of its fences of either kind
  uint64_t seenEpoch = 0;         // stores before its last fence of either kind
  std::vector<Part> parts;        // that holdForParts() has not yet been called for
  uint64_t lookedAt = 0;          // Machine::epoch at its last loadRelaxed()
  Knowledge known;                // of plain stores
  Knowledge copied;               // what it knew at its last fenceProxyAsync(), so that its copies see it
  uint64_t barrierFences = 0;     // number of its fenceBarrierInit()
  std::optional<Actor> observer;  // of race detection: knows the counters as they were when they were read
  Order observed;

  std::vector<std::shared_ptr<Store>> stores;  // not yet in a group
  std::deque<std::vector<std::shared_ptr<Store>>> storeGroups;

  uint64_t issued = 0;                 // number of products
  std::deque<uint64_t> productGroups;  // by group: the number of products issued before its end
  bool mayMultiply = false;            // fenceProducts() since it touched sums
  std::vector<std::unique_ptr<FlyingSum>> flying;
};

struct BarrierState {
  int count = 0, pending = 0;
  int64_t bytes = 0;                // announced and not yet there
  uint64_t phase = 0;               // number of phases that have ended
  int maker = 0;                    // thread
  uint64_t fencesBefore = 0;        // of the maker, when it made it
  std::array<KnownOrder, 2> order;  // by phase
};

struct NamedBarrier {
  Meeting meeting;
  int threads = 0;
};

struct Block {
  std::byte* shared = nullptr;
  std::vector<std::byte> memory;  // with room to align `shared`
  Records written;
  std::set<const void*> fencedMaps;
  std::map<const Barrier*, std::unique_ptr<BarrierState>> barriers;
  std::vector<std::unique_ptr<WarpState>> warps;
  std::vector<std::unique_ptr<WarpgroupState>> warpgroups;
  std::array<NamedBarrier, 16> named;  // 0: the block
  Knowledge added;                     // what threads knew that called addShared()
  std::vector<int> registers;          // by warpgroup, of each thread
  int freeRegisters = 0;
};

struct Region {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  Records written;
};

// Something that happens by itself when it is possible, later than it was asked for.
struct Operation {
  std::function<bool()> possible;
  std::function<void()> happen;
};

class Machine {
 public:
  Machine(const Launch& launch, std::vector<Region> regions);
  std::string run(const std::function<void()>& kernel);

  // This is the thread whose fiber runs.
  Thread& self() { return *threads[static_cast<size_t>(running)]; }
  Block& block() { return *blocks[static_cast<size_t>(self().block)]; }

  // Others may go on before it.
  void yield();
  // Goes on when `ready` holds, or at a time. The caller keeps the characters of `what`.
  void wait(std::string_view what, const Condition& ready, int64_t wakeAt = kNever);
  // Comes to a meeting of `expected` threads. Returns its generation.
  uint64_t meet(Meeting& meeting, int expected, std::string_view what, bool isOrdered);
  // This is a meeting of the warp: all lanes must call it.
  uint64_t align(std::string_view what, bool isOrdered = false);
  // Fails if the lanes of the warp may be apart, where hardware must find them together.
  void checkTogether(std::string_view what);

  void post(std::function<bool()> possible, std::function<void()> happen);
  void progress() { movedAt = now; }

  // Ends the run with what is wrong. The fiber does not go on.
  [[noreturn]] void fail(const std::string& what);
  // For operations, which belong to no fiber.
  void note(const std::string& what);

  // The block whose shared memory has the address; null: none.
  Block* findBlock(const void* address);
  // The region that has the address; null: none.
  Region* findRegion(const void* address);
  // Fails if the bytes are not in `memory` that the running thread may access.
  void checkAccess(const void* address, size_t bytes, bool onlyShared = false);
  // Where the record of a granule is; in no memory of the kernel: null.
  struct RecordPlace {
    Records* records = nullptr;
    size_t offset = 0;
  };
  RecordPlace findRecord(const void* address);
  // The record of a granule; null: no plain store wrote to it.
  Written* writtenAt(const void* address);

  int below(int limit) { return static_cast<int>(random() % static_cast<uint32_t>(limit)); }
  std::string where(const Thread& thread) const;

  const Launch launch;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Region> regions;  // by address; none has bytes of another
  std::vector<Operation> operations;
  std::mt19937 random;
  int running = -1;
  int64_t now = 1;      // ns
  int64_t movedAt = 1;  // when something last changed
  uint64_t epoch = 0;   // number of plain stores
  std::string problem;
  Order begin, end;  // of all threads and copies

 private:
  // A thread that waits, and what wakes it.
  struct Blocked {
    int thread = 0;
    int64_t wakeAt = kNever;
    Condition ready;
  };

  void endThread(const Thread& thread);
  bool takeTurn();
  void wakeReady();
  bool happenOne();
  std::string describeDeadlock() const;
  std::string describeThreadWait(const Thread& thread) const;
  void finish();

  bool isLate(int thread);

  int late_ = 0;           // a warpgroup that seldom goes on, counted over all blocks
  uint64_t redrawAt_ = 0;  // turn
  std::vector<int> runnable_;
  std::vector<Blocked> blocked_;
  uint64_t turns_ = 0;
};

// Returns the machine of the run under way.
Machine& machine();

std::string barrierName(const Block& block, const Barrier* barrier);
// Returns the state of a barrier, which must have been made and fenced.
BarrierState& findState(Machine& m, const Barrier* barrier);
// Bytes that a copy has brought, or the end of what a thread held the phase for.
void landBytes(BarrierState& state, int64_t bytes);
void endHold(BarrierState& state);
// A copy by the running thread reads global memory: of what a plain store wrote there, it must know, and have
// fenced since.
void checkKnown(Machine& m, const std::byte* global, size_t bytes);
// A copy or product (`what`) reads shared memory: who wrote it with a plain store must have fenced since, or
// all who issued it, after the stores up to number `seen`.
void checkFenced(Machine& m, const std::byte* shared, size_t bytes, const char* what, uint64_t seen = 0);

}  // namespace sluice::gpu::model
