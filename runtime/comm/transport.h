// Transport: how ranks reach each other. Symmetric memory, put, signal, abort, and who is gone.
//
// One Transport object belongs to one rank; its methods may be called by all worker threads of that rank
// unless they say otherwise. A put or signal to the own rank is legal and takes the same path.
//
// What is ordered, and all that is: when a signal or post of a thread to a rank comes about, everything that
// this thread put to that rank before it is there, and posts to one word come about in their order. A put may
// come about at any time before what covers it: early, in pieces, after later puts, twice. A signal or post
// may come about after later ones to other words, and any of them after others of other threads or to other
// ranks. All come about without another call, unless the step was aborted or a rank was lost: then what is
// still on its way may be lost too, but nothing comes about without the puts that it covers.
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

// Wakes the parked threads of a rank. Rings that nobody attends to cost one load, and are not heard: a thread
// attends, reads epoch(), looks at what it waits for, and parks on that epoch. A ring between the two is not
// lost, if what it looks at was written, and is read, seq_cst.
class Doorbell {
 public:
  void attend() { attending_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() { attending_.fetch_sub(1, std::memory_order_relaxed); }

  uint32_t epoch() const {
    // pairs with the increment in ring(): what was signalled before it is seen by whoever reads the new epoch
    return epoch_.load(std::memory_order_acquire);
  }
  void ring() {
    // pairs with attend(): either this sees the thread, or the thread's look sees what was signalled
    if (attending_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // Sleeps until the epoch is no longer `seen` or the time is over. The caller attends.
  void park(uint32_t seen, int64_t nanoseconds);

 private:
  void wake();

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> attending_{0};
  std::atomic<uint32_t> parked_{0};
};

// Attends while it lives.
class Attention {
 public:
  explicit Attention(Doorbell& bell) : bell_(bell) { bell_.attend(); }
  ~Attention() { bell_.leave(); }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

 private:
  Doorbell& bell_;
};

// What went to other ranks by messages; nothing of it counts where ranks store to each other's memory.
struct CommStats {
  int64_t puts = 0;
  int64_t putBytes = 0;
  int64_t signals = 0;
  int64_t flushes = 0;   // waits until what was put at a rank is there
  int64_t messages = 0;  // puts, and signals that went out together
};

class Transport {
 public:
  virtual ~Transport() = default;

  // "threads", "shm", "mpi": for messages.
  virtual std::string_view kind() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // How many of the ranks share this machine, and which of these this rank is, from 0.
  virtual int localRanks() const { return size(); }
  virtual int localRank() const { return rank(); }

  // Collective, by one thread of each rank, in the same order with the same `bytes`. Zero-filled, 4096-byte
  // aligned; reserved only, committed as touched. Lives as long as the transport.
  virtual Expected<SymmetricHandle> allocate(size_t bytes) = 0;

  // This rank's copy.
  virtual std::byte* local(SymmetricHandle handle) = 0;

  // The copy of `rank` where this process can store to it, else null: then use put.
  virtual std::byte* direct(int rank, SymmetricHandle handle) = 0;

  // direct() has the memory of all ranks, at all of them, and a put to any of them is there when it returns,
  // for whoever sees a later signal or post of the thread.
  virtual bool sharesMemory() const { return false; }

  // `data` may be used again when it returns.
  virtual void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) = 0;

  // Adds n to the 64-bit counter at `offset` and wakes that rank. What this thread put to that rank before
  // (through put or direct) is visible to whoever reads the counter with acquire. seq_cst, as post. Both
  // return at once; what they do comes about without another call, once.
  virtual void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) = 0;

  // Stores a 64-bit value at `offset` and wakes that rank.
  virtual void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) = 0;

  virtual Doorbell& doorbell() = 0;

  // Ends the step on all ranks: every rank's abortMessage() returns the first message from then on.
  virtual void abort(const std::string& message) = 0;
  virtual bool isAborted() const = 0;
  virtual std::string abortMessage() const = 0;

  // A rank that ended without leaving, or -1. Its loss aborts the step on all ranks by itself, with a message
  // that names it; who sees that abort sees the rank here, too.
  virtual int lostRank() const { return -1; }
  // `rank` has ended its transport in good order: nothing more comes from it.
  virtual bool hasLeft(int /*rank*/) const { return false; }
  // The process of `rank` is held by a signal or a debugger, where that can be seen from here.
  virtual bool isStopped(int /*rank*/) const { return false; }

  virtual CommStats stats() const { return {}; }

  // It was made by another process, of which this one was forked: nothing else of it may be used here.
  bool isInherited() const { return getpid() != process_; }

 private:
  const pid_t process_ = getpid();
};

// "; rank 1 is stopped", for reports of waits: such a rank keeps also those waiting that wait for others.
// Empty where none is.
std::string stoppedRanks(const Transport& transport);

}  // namespace sluice
