// Which rank of a job this process is, from its environment variables: RANK and WORLD_SIZE, as set by `sluice
// run`, by torchrun or by a user.
//
// Free functions on values; any thread. The environment is a parameter, so that tests need not change it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/base/expected.h"

namespace sluice::tools {

// The value of a variable, or null.
using Variables = std::function<const char*(const char* name)>;

// The variables of this process.
Variables processVariables();

struct GivenRank {
  int rank = 0;
  int size = 1;
};

// No rank if neither RANK nor WORLD_SIZE is set. Errors: one without the other; not a number; a rank that is
// not below the size.
Expected<std::optional<GivenRank>> findGivenRank(const Variables& variables);

// The name of a job whose ranks share this machine, the same at all of them and at most 64 bytes long:
// SLUICE_JOB, or else MASTER_ADDR and MASTER_PORT with torchrun's additions. Errors: none of them is set; the
// address of another machine; a torchrun across machines. Each message states what to do.
Expected<std::string> findJobName(const Variables& variables);

// Whether mpirun or srun started this process as one of several.
bool isStartedByMpi(const Variables& variables);

// Whether `host`, a name or an address, is this machine. May query the name service for names.
bool isThisMachine(const std::string& host);

}  // namespace sluice::tools
