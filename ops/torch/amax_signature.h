// AmaxSignature: rows or gradients that products round by an amax of earlier steps, which the caller gives
// (delayed scaling, docs/PRECISION.md).
//
// A value type. The program reads the largest magnitude to scale by from its input NAME_amax_used, or
// measures it, and writes this step's largest magnitude to its output NAME_amax. Both are F32 of one shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

struct AmaxSignature {
  std::string name;
  std::string used, found;     // names of the input and the output
  std::vector<int64_t> shape;  // [experts of this rank, 1], of tokens [1]
  bool readByForward = false;
  bool readByBackward = false;
  bool writtenByForward = false;
  bool writtenByBackward = false;

  bool isOfForward() const { return readByForward || writtenByForward; }
};

// Those of the entries "forward" and "backward", by name. Errors: other types or shapes than described above.
Expected<std::vector<AmaxSignature>> describeAmaxInputs(const TaskProgram& program, int rank);

}  // namespace sluice
