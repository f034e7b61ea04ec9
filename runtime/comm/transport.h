// Transport: how ranks reach each other: symmetric memory, put, signal, abort, and which ranks are gone.
//
// One Transport object belongs to one rank; all worker threads of that rank may call its methods unless a
// method states otherwise. A rank may put and signal to itself, which takes the same path.
//
// The only ordering guarantee: when a signal or post takes effect at a rank, every earlier put by the same
// thread to that rank is visible there; and posts by one thread to one word take effect in order. Until then
// a put may take effect at any time: early, in pieces, after later puts, or twice. A signal or post may take
// effect after later ones to other words; nothing orders it with signals and posts of other threads or to
// other ranks. All take effect without a further call, unless the step was aborted or a rank was lost: then
// those still under way may be lost, but a signal or post never takes effect without its earlier puts.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

// A symmetric allocation: the same handle means the same region at every rank.
struct SymmetricHandle {
  uint32_t index = 0;
};

// Wakes the parked threads of a rank. Ringing with no listener costs one load and has no effect. A listener
// attends, reads epoch(), checks its condition, and parks on that epoch. A ring between check and park is not
// lost if the condition's data is written and read with seq_cst.
class Doorbell {
 public:
  void attend() { attending_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() { attending_.fetch_sub(1, std::memory_order_relaxed); }

  uint32_t epoch() const {
    // pairs with the increment in wake(): a thread that reads the new epoch sees what was signalled before
    // the ring
    return epoch_.load(std::memory_order_acquire);
  }
  void ring() {
    // pairs with attend(): either this sees the thread, or the thread's check sees what was signalled
    if (attending_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // Sleeps until the epoch is no longer `seen` or the time is over. The caller must attend.
  void park(uint32_t seen, int64_t nanoseconds);

 private:
  void wake();

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> attending_{0};
  std::atomic<uint32_t> parked_{0};
};

// Attends for its lifetime.
class Attention {
 public:
  explicit Attention(Doorbell& bell) : bell_(bell) { bell_.attend(); }
  ~Attention() { bell_.leave(); }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

 private:
  Doorbell& bell_;
};

// Messages to other ranks; stores to shared memory are not counted.
struct CommStats {
  int64_t puts = 0;
  int64_t putBytes = 0;
  int64_t signals = 0;
  int64_t flushes = 0;   // waits for puts to take effect at a rank
  int64_t messages = 0;  // puts, and groups of signals sent together
};

class Transport {
 public:
  virtual ~Transport() = default;

  // "threads", "shm", "ucx" or "mpi", for messages.
  virtual std::string_view kind() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number of ranks on this machine, and the number of this rank among them, from 0.
  virtual int localRanks() const { return size(); }
  virtual int localRank() const { return rank(); }

  // Collective: one thread of each rank calls it, in the same order with the same `bytes`. Zero-filled,
  // 4096-byte aligned, committed when touched. Lives as long as the transport.
  virtual Expected<SymmetricHandle> allocate(size_t bytes) = 0;

  // This rank's copy.
  virtual std::byte* local(SymmetricHandle handle) = 0;

  // The copy of `rank`, or null if this process cannot store to it: then use put.
  virtual std::byte* direct(int rank, SymmetricHandle handle) = 0;

  // True if direct() reaches the memory of all ranks from every rank. A put is then complete when it returns,
  // for every thread that sees a later signal or post of the putting thread.
  virtual bool sharesMemory() const { return false; }

  // `data` may be reused when it returns.
  virtual void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) = 0;

  // Adds n to the 64-bit counter at `offset` and wakes that rank. A thread that reads the counter with
  // acquire sees every earlier put (or store through direct()) of this thread to that rank. seq_cst, like
  // post. Both return at once and take effect exactly once, without a further call.
  virtual void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) = 0;

  // Stores a 64-bit value at `offset` and wakes that rank.
  virtual void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) = 0;

  virtual Doorbell& doorbell() = 0;

  // Ends the step on all ranks: every rank's abortMessage() returns the first message from then on.
  virtual void abort(const std::string& message) = 0;
  virtual bool isAborted() const = 0;
  virtual std::string abortMessage() const = 0;

  // A rank that ended without leaving, or -1. Its loss aborts the step on all ranks with a message that names
  // it; a thread that sees that abort also sees the rank here.
  virtual int lostRank() const { return -1; }
  // Whether `rank` has destroyed its transport: nothing more arrives from it.
  virtual bool hasLeft(int /*rank*/) const { return false; }
  // Whether a signal or a debugger has stopped the process of `rank`, if that is visible from here.
  virtual bool isStopped(int /*rank*/) const { return false; }

  virtual CommStats stats() const { return {}; }

  // Whether this process is a forked child of the one that made the transport: the child may call nothing
  // else of it.
  bool isInherited() const { return getpid() != process_; }

 private:
  const pid_t process_ = getpid();
};

// "; rank 1 is stopped", for reports of waits: ranks that wait for a stopped rank hold up others in turn.
// Empty if none is stopped.
std::string stoppedRanks(const Transport& transport);

// Transport::signal for ranks that can store to each other's memory (threads, and processes of one machine):
// `word` is the receiver's counter, `bell` its doorbell.
inline void addAndRing(std::byte* word, uint64_t n, Doorbell& bell) {
  // pairs with the load in EventCounter::isComplete()
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).fetch_add(n, std::memory_order_seq_cst);
  bell.ring();
}

// Transport::post for them.
inline void storeAndRing(std::byte* word, uint64_t value, Doorbell& bell) {
  // pairs with the waiting thread's load of the word
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).store(value, std::memory_order_seq_cst);
  bell.ring();
}

}  // namespace sluice
