// A transport with faults, from a plan or a filter of signals. Everything else goes to the real transport.
//
// Operations that a plan delays are carried out by a separate thread, as the contract of Transport requires;
// those still pending when the object ends are carried out then. It ends after all contexts that use it and
// before the real transport.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime/comm/in_process.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/forwarding_transport.h"

namespace sluice {

// State that the faulty transports of one group of threads share: which rank has died.
struct FaultWorld {
  std::atomic<int> lost{-1};
};

class FaultyTransport final : public ForwardingTransport {
 public:
  // Called before each signal; false drops it.
  using Filter = std::function<bool(int rank, SymmetricHandle handle, size_t offset, uint64_t n)>;

  FaultyTransport(Transport& real, Filter keep);

  // A rank that dies is marked in the world, where others see it as lost; without a world the process kills
  // itself.
  FaultyTransport(Transport& real, const FaultPlan& plan, std::shared_ptr<FaultWorld> world);
  ~FaultyTransport() override;

  // Other ranks cannot store to the receiver's memory: every piece goes through put.
  void hideMemory() { plan_.hide = true; }

  // The number of operations so far.
  int64_t operations() const;

  Expected<SymmetricHandle> allocate(size_t bytes) override;
  std::byte* direct(int rank, SymmetricHandle handle) override {
    return plan_.hide ? nullptr : real_.direct(rank, handle);
  }
  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override;
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override;
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override;
  bool isAborted() const override { return dead_.load() || real_.isAborted(); }
  std::string abortMessage() const override;
  int lostRank() const override;

 private:
  enum class Kind : uint8_t { kPut, kSignal, kPost };
  struct Operation {
    Kind kind = Kind::kPut;
    int rank = 0;
    SymmetricHandle handle;
    size_t offset = 0;
    uint64_t value = 0;
    std::vector<std::byte> bytes;
    std::thread::id thread;
    int64_t due = 0;    // not before this time, as monotonicNanoseconds(), and
    int64_t after = 0;  // not before this many operations were issued, unless `due` is over
  };

  void issue(Operation operation);
  bool strike(Operation& operation);
  bool isBoard(SymmetricHandle handle) const;
  void die(const Operation& operation);
  bool isBlocked(const Operation& operation, size_t before) const;
  void perform(const Operation& operation);
  void postpone(Operation operation);
  void deliver();
  bool deliverOne();
  void reportDeath();

  FaultPlan plan_;
  const Filter keep_;
  const std::shared_ptr<FaultWorld> world_;
  std::atomic<bool> dead_{false};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::vector<Operation> late_;  // as issued
  std::vector<uint32_t> boards_;
  std::set<int> cutOff_;  // ranks
  int64_t issued_ = 0;
  int64_t blocks_ = 0;  // puts to boards
  int64_t deathKnown_ = 0;
  bool stop_ = false;
  std::thread courier_;
};

// Ranks that are threads of this process, all with faults from one plan.
class FaultyRanks {
 public:
  FaultyRanks(int size, const FaultPlan& plan);
  FaultyTransport& transport(int rank) { return *ranks_[rank]; }

 private:
  InProcessGroup group_;
  std::vector<std::unique_ptr<FaultyTransport>> ranks_;
};

}  // namespace sluice
