// Courier: what a rank says that has waited in vain for other ranks to end.
#include "runtime/comm/network/courier.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace sluice::network {
namespace {

struct NoReceiver : Receiver {
  void take(int, const Message&) override {}
  void takeAbort(const Abort&) override {}
  std::optional<Abort> aborted() override { return std::nullopt; }
  std::byte* memory(uint32_t, uint64_t, uint64_t) override { return nullptr; }
};

// What the test knows after the courier has ended the engine.
struct Seen {
  std::string givenUpWith;
};

// Without a network: the ranks in `present` never leave, and its turns hang if it is to.
class FakeEngine : public Engine {
 public:
  FakeEngine(Seen& seen, std::set<int> present, bool hangs)
      : seen_(seen), present_(std::move(present)), hangs_(hangs) {}

  std::string_view kind() const override { return "fake"; }
  uint32_t epoch() const override { return epoch_.load(); }
  void wake() override {
    ++epoch_;
    epoch_.notify_all();
  }
  void rest(uint32_t seen, int64_t) override { epoch_.wait(seen); }
  Status attach(std::byte*, size_t) override { return {}; }
  Expected<bool> turn(Outbox&, Receiver&) override {
    if (hangs_) givenUp_.wait(false);
    return false;
  }
  void abort(const Abort&) override {}
  bool isDone(int rank, Outbox&) const override { return present_.count(rank) == 0; }
  Status finish(int) override { return {}; }
  CommStats stats() const override { return {}; }
  void giveUp(const std::string& message) override {
    seen_.givenUpWith = message;
    givenUp_ = true;
    givenUp_.notify_all();
  }

 private:
  Seen& seen_;
  const std::set<int> present_;
  const bool hangs_;
  std::atomic<uint32_t> epoch_ = 0;
  std::atomic<bool> givenUp_ = false;
};

// What rank 1 of 4 gives the engine up with, after it has waited for so long; empty if all left.
std::string findEnd(std::set<int> present, bool hangs, double seconds) {
  Seen seen;
  NoReceiver receiver;
  auto courier = Courier::start(std::make_unique<FakeEngine>(seen, std::move(present), hangs),
                                {.rank = 1, .size = 4, .localRanks = {1}, .localRank = 0}, receiver);
  REQUIRE(courier.ok());
  (*courier)->finish(seconds);
  courier->reset();
  return seen.givenUpWith;
}

TEST_CASE("a rank that waits in vain for others to end names those that have not left") {
  CHECK(findEnd({0, 3}, false, 1) == "rank 1: waited 1 s for other ranks to end; still there: rank 0 3");
}

TEST_CASE("a rank whose engine hangs before it knows who has left names all others") {
  CHECK(findEnd({}, true, 0.2) == "rank 1: waited 0.2 s for other ranks to end; still there: rank 0 2 3");
}

TEST_CASE("a rank ends without a word where all others have left") { CHECK(findEnd({}, false, 20) == ""); }

}  // namespace
}  // namespace sluice::network
