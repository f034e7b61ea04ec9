#include "tests/testing/spare_places.h"

namespace sluice {

TaskProgram spareExperts(TaskProgram program, int32_t spare) {
  const BufferId placement{static_cast<uint32_t>(program.buffers.size())};
  program.buffers.push_back(
      {"placement", DType::kI32, {{Extent::kFixed, program.experts}}, Role::kInput, {}});
  for (Entry& entry : program.entries)
    if (entry.expertIds) entry.placement = placement;
  program.name += "_spare";
  program.spare = spare;
  return program;
}

}  // namespace sluice
