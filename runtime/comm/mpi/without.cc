#include "runtime/comm/mpi/mpi.h"

namespace sluice {

bool hasMpi() { return false; }

void setMpiDefaults() {}

Expected<std::unique_ptr<Transport>> joinMpi(const MpiJob&) {
  return Error{"this program was built without MPI"};
}

}  // namespace sluice
