// Target: the device model a program is compiled for, read from targets/NAME.json.
//
// Value type. The file has a source for each figure; the comments of the fields here define them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/analysis/tiles.h"
#include "runtime/base/expected.h"
#include "runtime/cost/rates.h"
#include "runtime/program/program.h"

namespace sluice {

struct Target {
  std::string name;
  std::vector<std::string> processors;  // for which it was measured: words of processorModel()'s beginning
  // If matrix and vector cores are separate; else 0.
  int32_t cubeCores = 0;
  int32_t vectorCores = 0;
  int32_t communicationCores = 0;  // vector cores that only communicate; the reference policy has none
  int32_t cores = 8;               // unified ones, 1 to 4096; unused if cores are separate
  // The sizes of a program unless better ones are known. Files of targets with separate cores do not have
  // them.
  int32_t slotRows = 128;  // rows per slot, a multiple of 16
  int32_t tokenSlot = 32;  // tokens per slot
  TileSizes tiles;
  Windows windows;
  std::optional<Rates> rates;  // of one of its cores; none: sizes cannot be chosen by the cost model
};

// A device model of the folder targets, embedded in the program, so that it works wherever it is copied to.
struct ShippedTarget {
  std::string_view name;
  std::string_view text;  // of the file
};

// In alphabetical order. Generated from the files; any thread may call it.
std::span<const ShippedTarget> shippedTargets();

// Reads the model `nameOrPath`: a path if it ends in ".json", else the name of a file in the first of
// `folders` that has it, or else of a model that is embedded in this program (targets/); "native" is the
// model of this machine's processor. Errors: no such target (lists the existing ones), a file that is not a
// device model, a key that nothing reads, a figure without a source.
Expected<Target> loadTarget(const std::string& nameOrPath, std::span<const std::string> folders);

// The first model, by name, that was measured for this processor (processorModel()), or else "cpu". Errors: a
// model that comes before it cannot be loaded.
Expected<Target> targetFor(const std::string& processor, std::span<const std::string> folders);

// The folders to search for targets: $SLUICE_TARGETS if it is set; else the runfiles of this executable, its
// folder, and the folder above. `argv0` is how it was called.
std::vector<std::string> targetFolders(const std::string& argv0);

}  // namespace sluice
