// Target: the device model a program is compiled for, read from targets/NAME.json.
//
// Value type. The file gives each figure with its source; what each means stands beside the field here.
#pragma once

#include <span>
#include <string>

#include "compiler/analysis/tiles.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// Slots that one run of a lane's table covers, by space.
struct Windows {
  int32_t tokens = 32;
  int32_t rows = 16;
  int32_t sends = 64;
  int32_t returns = 64;
  int32_t experts = 1;
};

struct Target {
  std::string name;
  int32_t cubeCores = 0;    // where matrix and vector cores are apart; else 0, and nothing below is read
  int32_t vectorCores = 0;  // likewise
  int32_t cores = 8;        // seats of the tables, 1 to 4096
  int32_t slotRows = 128;   // rows of a slot, a multiple of 16
  int32_t tokenSlot = 32;   // tokens of a slot
  TileSizes tiles;
  Windows windows;
};

// Reads the model `nameOrPath`: a path if it ends in ".json", else the name of a file in one of `folders`,
// the first that has it. Errors: no such target (lists those there are), a file that is not a device model.
Expected<Target> loadTarget(const std::string& nameOrPath, std::span<const std::string> folders);

// Where targets are looked for: in $SLUICE_TARGETS if it is set; else in the runfiles of this executable,
// beside it, and in the folder above. `argv0` is how it was called.
std::vector<std::string> targetFolders(const std::string& argv0);

}  // namespace sluice
