// The program as text, complete: parseProgram(printProgram(p)) == p. The syntax is described in
// docs/PROGRAM.md. Runtime tests are written in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

std::string printProgram(const TaskProgram& program);

// Which sections printSections() shows; lanes may be narrowed to one core.
struct TextSelection {
  bool header = true, spaces = true, buffers = true, events = true, families = true, tasks = true,
       tiling = true;
  int32_t core = -1;                      // -1: all
  std::optional<CoreKind> coreKind = {};  // of `core`; none: of every kind
  bool tables = false;                    // written out even if they are dealt by the formula

  bool hasSeat(const Lane& lane, size_t seat) const {
    return core < 0 || (coreKind.value_or(lane.core) == lane.core &&
                        static_cast<int64_t>(lane.firstCore) + static_cast<int64_t>(seat) == core);
  }
};

// Selected sections, for reading; not meant to be parsed again unless everything is selected.
std::string printSections(const TaskProgram& program, const TextSelection& selection);

// Errors carry "name:line:column". `name` is the file's name for messages.
Expected<TaskProgram> parseProgram(std::string_view text, std::string_view name);

}  // namespace sluice
