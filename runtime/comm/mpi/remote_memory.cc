#include "runtime/comm/mpi/remote_memory.h"

#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {

Expected<std::unique_ptr<RemoteMemory>> RemoteMemory::create(MPI_Comm comm) {
  std::unique_ptr<RemoteMemory> memory(new RemoteMemory);
  MPI_Win& window = memory->window_;
  if (Status ok = checked(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window), "window"); !ok)
    return Error{ok.error().message +
                 "; OMPI_MCA_osc=^ucx in the environment chooses an engine that needs no UCX"};
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  int* model = nullptr;
  int found = 0;
  MPI_Win_get_attr(window, MPI_WIN_MODEL, &model, &found);
  if (!found || *model != MPI_WIN_UNIFIED)
    return Error{"this MPI keeps windows apart from memory, expected the model MPI_WIN_UNIFIED"};
  if (Status ok = checked(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "access to the window"); !ok)
    return ok.error();
  return memory;
}

RemoteMemory::~RemoteMemory() {
  if (window_ == MPI_WIN_NULL) return;
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

Status RemoteMemory::attach(std::byte* base, size_t bytes) {
  if (bytes == 0) return {};
  return checked(MPI_Win_attach(window_, base, static_cast<MPI_Aint>(bytes)), "memory of a window");
}

Status RemoteMemory::put(int rank, uint64_t address, const void* data, size_t bytes) {
  const int count = static_cast<int>(bytes);
  return checked(
      MPI_Put(data, count, MPI_BYTE, rank, static_cast<MPI_Aint>(address), count, MPI_BYTE, window_), "put");
}

Status RemoteMemory::store(int rank, uint64_t address, std::span<const uint64_t> words) {
  const int count = static_cast<int>(words.size());
  return checked(MPI_Accumulate(words.data(), count, MPI_UINT64_T, rank, static_cast<MPI_Aint>(address),
                                count, MPI_UINT64_T, MPI_REPLACE, window_),
                 "accumulate");
}

Status RemoteMemory::probe(int rank, uint64_t address, uint64_t* word, MPI_Request* request) {
  return checked(MPI_Rget(word, 1, MPI_UINT64_T, rank, static_cast<MPI_Aint>(address), 1, MPI_UINT64_T,
                          window_, request),
                 "get");
}

Status RemoteMemory::flush(int rank) { return checked(MPI_Win_flush(rank, window_), "flush"); }

Status RemoteMemory::flushLocal(int rank) { return checked(MPI_Win_flush_local(rank, window_), "flush"); }

}  // namespace sluice::mpi
