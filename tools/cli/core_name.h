// Names of cores on the command line: "3", or a kind and a number, "cube3". Free functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice::tools {

struct CoreName {
  std::optional<CoreKind> kind;  // none: the core with that number of every kind that has one
  int32_t number = 0;
};

// Error: the program has no such core.
Expected<CoreName> findCore(const TaskProgram& program, std::string_view name);

// "8 cores" or "24 cube cores, 48 vector cores".
std::string coreCounts(const TaskProgram& program);

}  // namespace sluice::tools
