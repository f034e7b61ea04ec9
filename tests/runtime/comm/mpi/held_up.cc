// A rank that is held up inside one call of MPI; held_up.sh runs it by mpirun.
//
//   held_up stop CALL    rank 1 stops when it reaches that call
//   held_up block CALL   rank 1 never returns from it
//   held_up none -       nothing happens to it
//
// The transport's calls go through the functions below, which replace MPI's (profiling interface).
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/comm/mpi/mpi.h"

namespace {

std::string_view mode;
std::string_view call;

bool isVictim() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank && std::string_view(rank) == "1";
}

void comeTo(std::string_view name) {
  if (name != call || !isVictim()) return;
  if (mode == "stop") raise(SIGSTOP);
  while (mode == "block") pause();
}

}  // namespace

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  comeTo("MPI_Init_thread");
  return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Comm_dup(MPI_Comm from, MPI_Comm* to) {
  comeTo("MPI_Comm_dup");
  return PMPI_Comm_dup(from, to);
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* window) {
  comeTo("MPI_Win_create_dynamic");
  return PMPI_Win_create_dynamic(info, comm, window);
}

int MPI_Win_attach(MPI_Win window, void* base, MPI_Aint bytes) {
  static int calls = 0;  // the first is of the transport's own memory, while all ranks start
  if (++calls > 1) comeTo("MPI_Win_attach");
  return PMPI_Win_attach(window, base, bytes);
}

int MPI_Win_free(MPI_Win* window) {
  comeTo("MPI_Win_free");
  return PMPI_Win_free(window);
}

int MPI_Finalize() {
  comeTo("MPI_Finalize");
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: held_up stop|block|none CALL\n");
    return 2;
  }
  mode = argv[1];
  call = argv[2];
  // a blocked rank is the first to notice
  auto transport = sluice::joinMpi({.timeoutSeconds = mode != "block" || isVictim() ? 5.0 : 20.0});
  if (!transport) {
    fmt::print(stderr, "error: {}\n", transport.error().message);
    return 1;
  }
  const auto memory = (*transport)->allocate(4096);
  if (!memory) fmt::print(stderr, "error: {}\n", memory.error().message);
  return memory ? 0 : 1;
}
