#include "runtime/comm/mpi/session.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/mpi/mpi.h"

namespace sluice::mpi {
namespace {

// Whether the launcher ends the whole job when one process ends before MPI_Finalize. Open MPI's mpirun does,
// unless recovery was requested.
bool launcherEndsJob() {
  return std::getenv("OMPI_MCA_orte_launch") && !std::getenv("OMPI_MCA_orte_enable_recovery");
}

bool asksFor(const char* variable, std::string_view engine) {
  const char* value = std::getenv(variable);
  return value && value == engine;
}

}  // namespace

Status checked(int code, const char* what) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error{fmt::format("MPI: {}: {}", what, std::string_view(text, static_cast<size_t>(length)))};
}

Expected<std::unique_ptr<Session>> Session::open(CallLimit& limit) {
  std::unique_ptr<Session> session(new Session);
  int already = 0, level = 0;
  MPI_Initialized(&already);
  if (already) {
    MPI_Query_thread(&level);
  } else {
    setMpiDefaults();
    limit.enter("MPI_Init");
    if (Status ok = checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "start"); !ok)
      return ok.error();
    session->initialised_ = true;
  }
  limit.enter("the first calls of MPI to all ranks");
  if (level < MPI_THREAD_SERIALIZED)
    return Error{"MPI allows one thread only, expected the level of threads MPI_THREAD_SERIALIZED"};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (Status ok = checked(MPI_Comm_dup(MPI_COMM_WORLD, &session->comm_), "copy of the communicator"); !ok)
    return ok.error();
  MPI_Comm_set_errhandler(session->comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(session->comm_, &session->place_.rank);
  MPI_Comm_size(session->comm_, &session->place_.size);
  if (Status ok = session->findNeighbours(); !ok) return ok.error();
  return session;
}

Status Session::findNeighbours() {
  MPI_Comm machine = MPI_COMM_NULL;
  if (Status ok =
          checked(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, place_.rank, MPI_INFO_NULL, &machine),
                  "ranks of this machine");
      !ok)
    return ok;
  int neighbours = 0;
  MPI_Comm_rank(machine, &place_.localRank);
  MPI_Comm_size(machine, &neighbours);
  place_.localRanks.resize(static_cast<size_t>(neighbours));
  const int code = MPI_Allgather(&place_.rank, 1, MPI_INT, place_.localRanks.data(), 1, MPI_INT, machine);
  MPI_Comm_free(&machine);
  return checked(code, "ranks of this machine");
}

Expected<std::string> Session::makeLocalName() const {
  // every rank draws a name and gathers the names of all ranks: the ranks of one machine use their first
  // rank's name
  std::array<unsigned char, 16> own{};
  if (getrandom(own.data(), own.size(), 0) != static_cast<ssize_t>(own.size()))
    return Error{"no random bytes for the name of the job"};
  std::vector<unsigned char> all(own.size() * static_cast<size_t>(place_.size));
  if (Status ok = checked(MPI_Allgather(own.data(), 16, MPI_BYTE, all.data(), 16, MPI_BYTE, comm_), "names");
      !ok)
    return ok.error();
  std::string name = "mpi-";
  for (size_t i = 0; i < own.size(); ++i)
    name += fmt::format("{:02x}", all[own.size() * static_cast<size_t>(place_.localRanks.front()) + i]);
  return name;
}

void Session::end(const std::string& message) const {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::fflush(nullptr);
  // after MPI_Abort the mpirun of Open MPI 4.1 hung or crashed in 1 of 100 runs
  if (!launcherEndsJob()) MPI_Abort(comm_, 1);
  std::_Exit(1);
}

Session::~Session() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  if (initialised_) MPI_Finalize();
}

}  // namespace sluice::mpi

namespace sluice {

void setMpiDefaults() {
  const auto choose = [](const char* variable, const char* value) { setenv(variable, value, 0); };
  // Windows on UCX itself do not work in Open MPI 4 (RemoteMemory::create); those on messages do, including
  // messages over UCX.
  choose("OMPI_MCA_osc", "^ucx");
  // A process that waits inside MPI spins; its workers need the core.
  choose("OMPI_MCA_mpi_yield_when_idle", "1");
  // With UCX only every 100th poll of the network progresses windows, and the courier sleeps between two
  // polls.
  choose("OMPI_MCA_pml_ucx_progress_iterations", "1");
  // A job that requests UCX gets it on any network, not only on InfiniBand.
  if (mpi::asksFor("OMPI_MCA_pml", "ucx")) {
    choose("OMPI_MCA_pml_ucx_tls", "any");
    choose("OMPI_MCA_pml_ucx_devices", "any");
  }
  // The provider net of libfabric 1.17, the default on machines without a fabric, loses messages. The other
  // names are Open MPI's own list. If the user gives a list of providers to include, an exclude list is not
  // allowed.
  if (!std::getenv("OMPI_MCA_mtl_ofi_provider_include"))
    choose("OMPI_MCA_mtl_ofi_provider_exclude", "shm,sockets,tcp,udp,rstream,usnic,net");
}

}  // namespace sluice
