#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/comm/mpi/call_limit.h"
#include "runtime/comm/mpi/mpi_transport.h"
#include "runtime/comm/shm/shared_memory.h"

namespace sluice {
namespace {

// Null if no other rank is on this machine, or if neighbours are to use messages.
Expected<std::unique_ptr<Transport>> joinNeighbours(const mpi::Session& session, const MpiJob& job) {
  auto name = session.makeLocalName();  // collective
  if (!name) return name.error();
  const int ranks = static_cast<int>(session.localRanks().size());
  if (!job.sharedMemory || ranks == 1) return std::unique_ptr<Transport>();
  auto localTransport = joinSharedMemory({*name, session.localRank(), ranks, job.timeoutSeconds});
  if (!localTransport)
    return Error{fmt::format("between the ranks of one machine: {}", localTransport.error().message)};
  return localTransport;
}

// Gives all ranks the same result, so that none continues alone into a call that waits for the others.
Status agree(const mpi::Session& session, const Status& own) {
  const int failed = own ? session.size() : session.rank();
  int first = 0;
  if (Status ok =
          mpi::checked(MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, session.comm()), "agreement");
      !ok)
    return ok;
  if (!own) return own;
  if (first == session.size()) return {};
  return Error{fmt::format("rank {} could not join the ranks of its machine", first)};
}

// Variables of the environment, meant for measurements, take precedence.
Expected<MpiJob> withVariables(MpiJob job) {
  const auto choose = [](const char* name, std::string_view yes, std::string_view no,
                         bool& choice) -> Status {
    const char* value = std::getenv(name);
    if (!value) return {};
    if (value != yes && value != no)
      return Error{fmt::format("variable {}: found '{}', expected {} or {}", name, value, yes, no)};
    choice = value == yes;
    return {};
  };
  Status ok = choose("SLUICE_MPI_NEIGHBOURS", "memory", "messages", job.sharedMemory);
  if (ok) ok = choose("SLUICE_MPI_SIGNALS", "batched", "each", job.batchSignals);
  return ok ? Expected<MpiJob>(job) : ok.error();
}

}  // namespace

bool hasMpi() { return true; }

Expected<std::unique_ptr<Transport>> joinMpi(const MpiJob& asked) {
  if (Status sane = checkTimeLimit(asked.timeoutSeconds); !sane) return sane.error();
  auto limit = mpi::CallLimit::start(asked.timeoutSeconds);
  if (!limit) return limit.error();
  auto session = mpi::Session::open(**limit);
  if (!session) return session.error();
  const Expected<MpiJob> job = withVariables(asked);
  // if the ranks of one machine do not meet within their own limit, their message names the missing ones
  (*limit)->enter("the meeting of all ranks");
  auto localTransport = joinNeighbours(**session, job ? *job : asked);
  Status own = job ? Status() : Status(job.error());
  if (own && !localTransport) own = localTransport.error();
  if (Status all = agree(**session, own); !all) return all.error();
  return mpi::MpiTransport::create(std::move(*session), std::move(*localTransport), std::move(*limit), *job);
}

}  // namespace sluice
