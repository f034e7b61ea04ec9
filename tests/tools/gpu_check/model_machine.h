// The hardware model as the machine of gpu_check, with facts that can be broken.
#pragma once

#include <string>

#include "tools/gpu_check/check_machine.h"

namespace sluice::tools {

// What is not as on a GPU that works. "": nothing. "driver", "kind", "memory": of the machine. "alignment":
// shared memory begins elsewhere. "majors", "boxes": of products and copies. "hang": a probe does not end,
// "crash": it ends its process. "kernel": products are twice what they should be. "signals": tasks without
// rows do not signal. "ranks": rank 1 copies half of its rows.
CheckMachine modelMachineWith(const std::string& fault);
// Error: there is no such fault.
Status checkFault(const std::string& fault);

}  // namespace sluice::tools
