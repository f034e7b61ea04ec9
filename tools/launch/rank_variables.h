// Which rank of a job this process is, by the variables of its environment: RANK and WORLD_SIZE, as
// `sluice run` and torchrun set them or a user does.
//
// Free functions on values; any thread. The environment is passed in, so that tests need not change it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/base/expected.h"

namespace sluice::tools {

// The value of a variable, or null.
using Variables = std::function<const char*(const char* name)>;

// Those of this process.
Variables processVariables();

struct GivenRank {
  int rank = 0;
  int size = 1;
};

// Nothing where neither RANK nor WORLD_SIZE is set. Errors: one without the other, no numbers, a rank that is
// not below the size.
Expected<std::optional<GivenRank>> findGivenRank(const Variables& variables);

// The name of a job whose ranks share this machine, the same at all of them and of at most 64 bytes:
// SLUICE_JOB, or else MASTER_ADDR and MASTER_PORT, with what torchrun adds. Errors: none of them (says what
// to set); an address of another machine, or a torchrun across machines (says what to do).
Expected<std::string> findJobName(const Variables& variables);

// Whether mpirun or srun started this process as one of several.
bool isStartedByMpi(const Variables& variables);

// Whether `host`, a name or an address, is this machine. May ask the name service for other names.
bool isThisMachine(const std::string& host);

}  // namespace sluice::tools
