// Transport: how ranks reach each other. Symmetric memory, put, signal, fence, abort.
//
// One Transport object belongs to one rank; its methods may be called by all worker threads of that rank
// unless they say otherwise. A put or signal to the own rank is legal and takes the same path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/expected.h"

namespace sluice {

// A symmetric allocation: the same handle means the same region at every rank.
struct SymmetricHandle {
  uint32_t index = 0;
};

// Wakes the parked workers of a rank. A worker reads epoch(), looks at its heads, and parks on that epoch:
// a ring between the two is not lost.
class Doorbell {
 public:
  uint32_t epoch() const;
  void ring();
  // Sleeps until the epoch is no longer `seen` or the time is over.
  void park(uint32_t seen, int64_t nanoseconds);

 private:
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> parked_{0};
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective, by one thread of each rank, in the same order with the same `bytes`. Zero-filled, 4096-byte
  // aligned; reserved only, committed as touched. Lives as long as the transport.
  virtual Expected<SymmetricHandle> allocate(size_t bytes) = 0;

  // This rank's copy.
  virtual std::byte* local(SymmetricHandle handle) = 0;

  // The copy of `rank` where this process can store to it, else null: then use put.
  virtual std::byte* direct(int rank, SymmetricHandle handle) = 0;

  virtual void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) = 0;

  // Adds n to the 64-bit counter at `offset` and wakes that rank. What this thread put to that rank before
  // (through put or direct) is visible to whoever reads the counter with acquire.
  virtual void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) = 0;

  // Stores a 64-bit value at `offset` with release, and wakes that rank.
  virtual void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) = 0;

  virtual Doorbell& doorbell() = 0;

  // Ends the step on all ranks: every rank's aborted() returns the first message from then on.
  virtual void abort(const std::string& message) = 0;
  virtual bool isAborted() const = 0;
  virtual std::string abortMessage() const = 0;
};

}  // namespace sluice
