// RemoteMemory: the window through which ranks access each other's memory.
//
// It is dynamic and covers all symmetric memory, so that one flush completes the puts to all allocations.
//
// Resource type; one thread at a time calls it. Every function returns MPI's error as a value.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/expected.h"

namespace sluice::mpi {

class RemoteMemory {
 public:
  // Collective over the communicator. Errors: no engine of this MPI makes such windows here, or only one
  // whose windows are known to be broken.
  static Expected<std::unique_ptr<RemoteMemory>> create(MPI_Comm comm);
  // Collective: returns when all ranks have called it. No operation may be under way.
  ~RemoteMemory();
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // Lets other ranks access this memory until the window ends.
  Status attach(std::byte* base, size_t bytes);

  // `data` must not change until the flush.
  Status put(int rank, uint64_t address, const void* data, size_t bytes);
  // Stores words one by one, each atomically; `words` must not change until the flush.
  Status store(int rank, uint64_t address, std::span<const uint64_t> words);
  // Begins to read a word at `address` into `word`. In practice, though not by MPI's rules, it completes
  // after all earlier operations, so the flush that follows does not wait.
  Status probe(int rank, uint64_t address, uint64_t* word, MPI_Request* request);
  // Returns when all earlier operations are complete at `rank`.
  Status flush(int rank);
  // Returns when the memory of all earlier operations may be used again.
  Status flushLocal(int rank);

 private:
  RemoteMemory() = default;

  MPI_Win window_ = MPI_WIN_NULL;
  bool locked_ = false;
};

}  // namespace sluice::mpi
