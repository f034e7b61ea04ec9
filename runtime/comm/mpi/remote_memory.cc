#include "runtime/comm/mpi/remote_memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {
namespace {

// Open MPI 4's engine on UCX crashes when a window ends to which a second piece of memory was attached, and
// its MPI_Rget looks for another address than was asked for.
Status checkEngine(MPI_Win window) {
  char name[MPI_MAX_OBJECT_NAME] = "", version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Win_get_name(window, name, &length);
  MPI_Get_library_version(version, &length);
  if (!std::string_view(name).starts_with("ucx window") ||
      !std::string_view(version).starts_with("Open MPI v4"))
    return {};
  return Error{
      "found Open MPI 4's engine ucx for windows, which crashes with several pieces of memory in one, "
      "expected another: OMPI_MCA_osc=^ucx (--mca osc ^ucx); with OMPI_MCA_pml=ucx that also goes over UCX"};
}

}  // namespace

Expected<std::unique_ptr<RemoteMemory>> RemoteMemory::create(MPI_Comm comm) {
  std::unique_ptr<RemoteMemory> memory(new RemoteMemory);
  MPI_Win& window = memory->window_;
  if (Status ok = checked(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window), "window"); !ok)
    return Error{fmt::format(
        "{}; no engine that OMPI_MCA_osc='{}' allows makes one here, expected '^ucx', which allows one "
        "that works over any network",
        ok.error().message, std::getenv("OMPI_MCA_osc") ? std::getenv("OMPI_MCA_osc") : "")};
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  if (Status ok = checkEngine(window); !ok) return ok.error();
  int* model = nullptr;
  int found = 0;
  MPI_Win_get_attr(window, MPI_WIN_MODEL, &model, &found);
  if (!found || *model != MPI_WIN_UNIFIED)
    return Error{"this MPI keeps windows apart from memory, expected the model MPI_WIN_UNIFIED"};
  if (Status ok = checked(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "access to the window"); !ok)
    return ok.error();
  memory->locked_ = true;
  return memory;
}

RemoteMemory::~RemoteMemory() {
  if (window_ == MPI_WIN_NULL) return;
  if (locked_) MPI_Win_unlock_all(window_);
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
