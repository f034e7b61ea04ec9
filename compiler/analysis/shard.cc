#include "compiler/analysis/shard.h"

#include <fmt/format.h>

#include "compiler/analysis/finding.h"
#include "runtime/program/op_table.h"
#include "runtime/program/sharding.h"
#include "runtime/program/words.h"

namespace sluice {

Expected<TaskProgram> shardTensors(TaskProgram program) {
  if (program.mesh.tp == 1) {
    for (Buffer& buffer : program.buffers) buffer.sharding = Sharding::kWhole;
    return program;
  }
  for (const Buffer& buffer : program.buffers)
    if (Status status = checkSharding(buffer); !status) return Error{"error: " + status.error().message};
  for (const Family& family : program.families) {
    const Expected<std::vector<Sharding>> written = deriveShardings(program, family);
    if (!written) return errorAt(family, fmt::format("node '{}': {}", family.name, written.error().message));
    for (size_t i = 0; i < written->size(); ++i) {
      const BufferId id = bufferAt(family.writes, i);
      if (!id) continue;
      Buffer& buffer = program.buffers[id.value];
      if (buffer.sharding != Sharding::kWhole && buffer.sharding != (*written)[i])
        return errorAt(family,
                       fmt::format("node '{}' writes output '{}', {} at each of {} ranks, but the graph "
                                   "declares it as {}",
                                   family.name, buffer.name, text::word((*written)[i]), program.mesh.tp,
                                   text::word(buffer.sharding)));
      buffer.sharding = (*written)[i];
      if (Status status = checkSharding(buffer); !status) return errorAt(family, status.error().message);
    }
  }
  return program;
}

}  // namespace sluice
