// The faulty transport itself: it makes the faults that a plan allows, and no others.
#include "tests/testing/faulty_transport.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

namespace sluice {
namespace {

uint64_t wordAt(Transport& transport, SymmetricHandle handle, size_t offset) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(transport.local(handle) + offset)).load();
}

// Whether this takes effect within a second.
template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return false;
}

struct Pair {
  explicit Pair(std::string_view plan) : ranks(2, *parseFaultPlan(plan)) {
    for (int rank = 0; rank < 2; ++rank)
      for (int i = 0; i < 4; ++i) handle = *ranks.transport(rank).allocate(4096);
  }
  FaultyRanks ranks;
  SymmetricHandle handle;
};

struct Disorder {
  int wrong = 0;   // signals that arrived before the puts that they cover
  int passed = 0;  // signals that arrived before an earlier one
};

// Checks the memory whenever a signal arrives: signal i covers the number i + 1.
class Recorder final : public ForwardingTransport {
 public:
  Recorder(Transport& real, Transport& receiver) : ForwardingTransport(real), receiver_(receiver) {}
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    disorder.wrong += wordAt(receiver_, handle, 2048 + offset) != offset / 8 + 1;
    disorder.passed += offset < furthest_;
    furthest_ = std::max(furthest_, offset);
    real_.signal(rank, handle, offset, n);
  }
  Disorder disorder;

 private:
  Transport& receiver_;
  size_t furthest_ = 0;
};

// Puts and signals words one after the other.
Disorder watch(std::string_view plan, uint64_t seed) {
  InProcessGroup group(2);
  Transport& receiver = group.transport(1);
  Recorder recorder(group.transport(0), receiver);
  SymmetricHandle handle;
  constexpr size_t kWords = 60;
  {
    FaultyTransport sender(recorder, *parseFaultPlan(std::string(plan) + " seed=" + std::to_string(seed)),
                           std::make_shared<FaultWorld>());
    // the first three are boards, of which nothing overtakes anything
    for (int i = 0; i < 4; ++i) handle = *sender.allocate(4096);
    for (uint64_t i = 0; i < kWords; ++i) {
      const uint64_t value = i + 1;
      sender.put(1, handle, 2048 + i * 8, &value, 8);
      sender.signal(1, handle, i * 8, 1);
    }
  }
  // when the transport has ended, all have taken effect, once
  for (size_t i = 0; i < kWords; ++i) {
    CHECK(wordAt(receiver, handle, i * 8) == 1);
    CHECK(wordAt(receiver, handle, 2048 + i * 8) == i + 1);
  }
  return recorder.disorder;
}

TEST_CASE("late, reordered and doubled operations all come about once, signals after what they cover") {
  Disorder all;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Disorder one = watch("delay=40% reorder=40% duplicate=40%", seed);
    all.wrong += one.wrong;
    all.passed += one.passed;
  }
  CHECK(all.wrong == 0);
  CHECK(all.passed > 0);
}

TEST_CASE("with overtake, signals come before what they cover") {
  Disorder all;
  for (uint64_t seed = 0; seed < 20 && all.wrong == 0; ++seed) all.wrong += watch("overtake", seed).wrong;
  CHECK(all.wrong > 0);
}

TEST_CASE("posts to one word stay in order") {
  for (int seed = 0; seed < 20; ++seed) {
    Pair pair("delay=60% reorder=30% seed=" + std::to_string(seed));
    Transport& receiver = pair.ranks.transport(1);
    for (uint64_t value = 1; value <= 30; ++value) pair.ranks.transport(0).post(1, pair.handle, 0, value);
    uint64_t last = 0;
    CHECK(soon([&] {
      const uint64_t value = wordAt(receiver, pair.handle, 0);
      CHECK(value >= last);
      last = value;
      return value == 30;
    }));
  }
}

TEST_CASE("a lost signal is lost alone, a lost put takes what follows with it") {
  Pair one("drop@n=2 rank=0");
  Transport& sender = one.ranks.transport(0);
  for (int i = 0; i < 3; ++i) sender.signal(1, one.handle, 0, 1);
  CHECK(wordAt(one.ranks.transport(1), one.handle, 0) == 2);

  Pair other("drop@n=2 rank=0");
  Transport& cut = other.ranks.transport(0);
  const uint64_t value = 9;
  cut.signal(1, other.handle, 0, 1);
  cut.put(1, other.handle, 64, &value, 8);
  cut.signal(1, other.handle, 0, 1);
  cut.signal(0, other.handle, 0, 1);
  CHECK(wordAt(other.ranks.transport(1), other.handle, 0) == 1);
  CHECK(wordAt(other.ranks.transport(1), other.handle, 64) == 0);
  CHECK(wordAt(cut, other.handle, 0) == 1);  // to another rank
}

TEST_CASE("of a rank that dies nothing comes through any more, and the others are told") {
  Pair pair("die@n=2 rank=0");
  Transport& dead = pair.ranks.transport(0);
  Transport& alive = pair.ranks.transport(1);
  dead.signal(1, pair.handle, 0, 1);
  CHECK(alive.lostRank() == -1);
  dead.signal(1, pair.handle, 0, 1);
  dead.signal(1, pair.handle, 0, 1);
  CHECK(dead.isAborted());
  CHECK(soon([&] { return alive.isAborted(); }));
  CHECK(alive.lostRank() == 0);
  CHECK(alive.abortMessage() == "rank 0 has died");
  CHECK(wordAt(alive, pair.handle, 0) == 1);
}

}  // namespace
}  // namespace sluice
