// Target: the device model a program is compiled for, read from targets/NAME.json.
//
// Value type. The file gives each figure with its source; the comments of the fields here define them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "compiler/analysis/cost/rates.h"
#include "compiler/analysis/tiles.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

struct Target {
  std::string name;
  // With separate matrix and vector cores; else 0.
  int32_t cubeCores = 0;
  int32_t vectorCores = 0;
  int32_t communicationCores = 0;  // vector cores that only communicate; the reference policy has no such
  int32_t cores = 8;               // unified ones, 1 to 4096; unused with separate cores
  // The sizes of a program, unless better ones are known. Files of targets with separate cores do not have
  // them.
  int32_t slotRows = 128;  // rows of a slot, a multiple of 16
  int32_t tokenSlot = 32;  // tokens of a slot
  TileSizes tiles;
  Windows windows;
  std::optional<Rates> rates;  // of one of its cores; none: there is nothing to choose sizes by
};

// Reads the model `nameOrPath`: a path if it ends in ".json", else the name of a file in one of `folders`,
// the first that has it, or else of a model that is shipped inside of this program (targets/). Errors: no
// such target (lists those there are), a file that is not a device model, a key that nothing reads, a figure
// without a source.
Expected<Target> loadTarget(const std::string& nameOrPath, std::span<const std::string> folders);

// Where targets are looked for: in $SLUICE_TARGETS if it is set; else in the runfiles of this executable,
// beside it, and in the folder above. `argv0` is how it was called.
std::vector<std::string> targetFolders(const std::string& argv0);

}  // namespace sluice
