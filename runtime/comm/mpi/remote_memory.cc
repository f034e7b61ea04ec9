#include "runtime/comm/mpi/remote_memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {
namespace {

// In Open MPI 4 the engine on UCX crashes when a window with two pieces of attached memory ends, and its
// MPI_Rget reads from a wrong address. The engine of 5.0.7 aborts inside UCX's progress.
Status checkEngine(MPI_Win window) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  MPI_Win_get_name(window, name, &length);
  if (!std::string_view(name).starts_with("ucx window")) return {};
  return Error{
      "found Open MPI's engine ucx for windows, which crashes, expected another: --mca osc ^ucx "
      "(OMPI_MCA_osc=^ucx)"};
}

// The reason why there is no window, and the remedy.
std::string withoutWindow() {
  const auto value = [](const char* variable) {
    const char* found = std::getenv(variable);
    return std::string_view(found ? found : "");
  };
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string_view pml = value("OMPI_MCA_pml");
  if (std::string_view(version).starts_with("Open MPI v5") && (pml == "ucx" || pml == "cm"))
    return fmt::format(
        "Open MPI 5 has none that works with OMPI_MCA_pml='{}', expected ob1 (TCP, shared memory)", pml);
  return fmt::format(
      "no engine that OMPI_MCA_osc='{}' allows makes one here, expected '^ucx', which allows one that works "
      "over any network",
      value("OMPI_MCA_osc"));
}

}  // namespace

Expected<std::unique_ptr<RemoteMemory>> RemoteMemory::create(MPI_Comm comm) {
  std::unique_ptr<RemoteMemory> memory(new RemoteMemory);
  MPI_Win& window = memory->window_;
  if (Status ok = checked(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window), "window"); !ok)
    return Error{fmt::format("{}; {}", ok.error().message, withoutWindow())};
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
