#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/comm/mpi/call_limit.h"
#include "runtime/comm/mpi/mpi.h"
#include "runtime/comm/mpi/mpi_engine.h"
#include "runtime/comm/network/network_transport.h"

namespace sluice {
namespace {

// Gives all ranks the same result, so that none continues alone into a call that waits for the others.
Status agree(const mpi::Session& session, const Status& own) {
  const int failed = own ? session.place().size : session.place().rank;
  int first = 0;
  if (Status ok =
          mpi::checked(MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, session.comm()), "agreement");
      !ok)
    return ok;
  if (!own) return own;
  if (first == session.place().size) return {};
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
  const network::Place place = (*session)->place();
  auto name = (*session)->makeLocalName();  // collective
  if (!name) return name.error();
  Expected<std::unique_ptr<Transport>> localTransport = std::unique_ptr<Transport>();
  if (job && job->sharedMemory) localTransport = network::joinNeighbours(place, *name, job->timeoutSeconds);
  Status own = job ? Status() : Status(job.error());
  if (own && !localTransport) own = localTransport.error();
  if (Status all = agree(**session, own); !all) return all.error();
  auto engine = mpi::MpiEngine::create(std::move(*session), std::move(*limit), {.share = job->batchSignals});
  if (!engine) return engine.error();
  return network::NetworkTransport::create(std::move(*engine), place, std::move(*localTransport),
                                           job->timeoutSeconds);
}

}  // namespace sluice
