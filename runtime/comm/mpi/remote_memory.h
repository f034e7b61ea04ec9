// RemoteMemory: the windows through which ranks reach each other's memory.
//
// All windows are dynamic and lie over the same memory, so that one flush completes what went to any
// allocation. A flush waits for everything before it in its window: with two windows, used in turn, the next
// batch is under way while the one before is waited for.
//
// Resource type; one thread at a time calls it. Every function returns MPI's error as a value.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/expected.h"

namespace sluice::mpi {

class RemoteMemory {
 public:
  static constexpr int kWindows = 2;

  // Collective over the communicator.
  static Expected<std::unique_ptr<RemoteMemory>> create(MPI_Comm comm);
  // Collective: returns when all ranks are here. Nothing is under way any more.
  ~RemoteMemory();
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // From now on other ranks may reach this memory, as long as the windows live.
  Status attach(std::byte* base, size_t bytes);

  // `data` stays as it is until the flush.
  Status put(int window, int rank, uint64_t address, const void* data, size_t bytes);
  // Stores words one by one, each of them whole; `words` stay until the flush.
  Status store(int window, int rank, uint64_t address, std::span<const uint64_t> words);
  // Begins to read a word at `address` into `word`. It comes about when the window's earlier operations have:
  // not by MPI's rules, but in practice, and then the flush does not have to wait.
  Status probe(int window, int rank, uint64_t address, uint64_t* word, MPI_Request* request);
  // Returns when all earlier operations are complete at `rank`.
  Status flush(int window, int rank);
  // Returns when the memory of all earlier operations may be used again.
  Status flushLocal(int window, int rank);

 private:
  RemoteMemory() = default;

  std::array<MPI_Win, kWindows> windows_{MPI_WIN_NULL, MPI_WIN_NULL};
};

}  // namespace sluice::mpi
