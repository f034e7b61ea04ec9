#include "runtime/program/verify.h"

#include <utility>

#include "runtime/program/codec.h"
#include "runtime/program/op_table.h"
#include "runtime/program/seal.h"
#include "runtime/program/verify_internal.h"

namespace sluice {

using namespace verify_parts;

Expected<VerifiedProgram> verify(TaskProgram program) {
  // first, since the others quote them
  if (Status status = checkNames(program); !status) return status.error();
  for (Family& family : program.families) trimOperands(family);
  for (const auto check :
       {checkLimits, checkSpaces, checkBuffers, checkEntries, checkFamilies, checkPartners, checkLanes})
    if (Status status = check(program); !status) return status.error();

  const std::vector<EventUse> uses = collectEventUses(program);
  if (Status status = checkEvents(program, uses); !status) return status.error();

  auto order = orderFamilies(program, uses);
  if (!order) return order.error();
  if (Status status = checkLaneOrder(program, *order); !status) return status.error();

  const Coverage coverage = computeCoverage(program, uses, *order);
  if (Status status = checkAccesses(program, coverage); !status) return status.error();
  if (Status status = checkSharing(program, coverage); !status) return status.error();

  VerifiedProgram verified;
  verified.fingerprint_ = readChecksum(encode(program));
  verified.order_ = std::move(*order);
  verified.program_ = std::make_shared<const TaskProgram>(std::move(program));
  return verified;
}

}  // namespace sluice
