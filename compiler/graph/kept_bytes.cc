#include "compiler/graph/kept_bytes.h"

namespace sluice {

KeptBytes keptBytes(const Graph& graph) {
  KeptBytes kept;
  for (const GraphEntry& entry : graph.entries) {
    for (const TensorUse& use : entry.save) {
      const GraphTensor& tensor = graph.at(use.tensor);
      if (tensor.routing) continue;
      const Extent extent = tensor.shape.front().extent;
      if (extent != Extent::kTokens && extent != Extent::kRows) continue;
      int64_t bytes = dtypeBytes(tensor.type);
      for (const Dim& dim : tensor.shape)
        if (dim.extent == Extent::kFixed) bytes *= dim.size;
      (extent == Extent::kRows ? kept.row : kept.token) += bytes;
    }
  }
  return kept;
}

}  // namespace sluice
