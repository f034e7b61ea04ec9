#include "compiler/graph/kept_bytes.h"

namespace sluice {

KeptBytes keptBytes(const Graph& graph) {
  KeptBytes kept;
  for (const GraphEntry& entry : graph.entries) {
    for (const TensorUse& use : entry.save) {
      const GraphTensor& tensor = graph.at(use.tensor);
      if (tensor.routing || tensor.shape.front().extent == Extent::kFixed) continue;
      int64_t bytes = dtypeBytes(tensor.type);
      for (const Dim& dim : tensor.shape)
        if (dim.extent == Extent::kFixed) bytes *= dim.size;
      (tensor.shape.front().extent == Extent::kRows ? kept.row : kept.token) += bytes;
    }
  }
  return kept;
}

}  // namespace sluice
