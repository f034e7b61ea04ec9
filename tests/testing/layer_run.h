// Runs a MoE-FFN program on ranks that are threads of the test, with tensors of tools/moe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/hash.h"
#include "tests/testing/moe/reference.h"
#include "tools/io/tensor.h"
#include "tools/moe/inputs.h"

namespace sluice {

inline const ContextOptions kSerial{.executor = ExecutorKind::kSerial};

struct LayerData {
  tools::MoeDims dims;
  std::vector<int64_t> tokens;           // by rank
  std::vector<tools::TensorMap> inputs;  // by rank
  std::vector<tools::TensorMap> outputs;
};

// Inputs of the spec; outputs are allocated and filled with a pattern that no result has.
LayerData makeLayerData(const TaskProgram& program, const tools::InputsSpec& spec);

TensorView viewTensor(tools::Tensor& tensor);

// Throws what is wrong with the tables.
Program programOf(const TaskProgram& tables);

// "" of a step that succeeded.
inline std::string messageOf(const Status& status) { return status ? "" : status.error().message; }

// What a rank's thread does; the default binds everything and runs forward, then backward.
using RankBody = std::function<Status(int rank, Context& context)>;
Status bindAll(LayerData& data, int rank, Context& context);

// One context per rank, each in its own thread; returns what each rank returned. `wrap` may wrap the rank's
// real transport. A plan in the environment, such as SLUICE_FAULTS="seed=1 delay=5%" (fault_plan.h), makes
// the real transport faulty, so that whole test programs can be run under faults.
using WrapTransport = std::function<Transport&(int rank, Transport& real)>;
std::vector<Status> runRanks(const Program& program, const ContextOptions& options, const RankBody& body,
                             const WrapTransport& wrap = {});

// Binds all tensors and runs the entries on all ranks; returns the first error.
Status runLayer(const Program& program, const ContextOptions& options, LayerData& data,
                const std::vector<std::string>& entries = {"forward", "backward"},
                const WrapTransport& wrap = {});

// Errors of all five outputs, over all ranks.
std::vector<tools::OutputError> errorsOf(const LayerData& data);

inline std::span<const std::byte> bytesOf(const tools::Tensor& tensor) {
  return {tensor.data(), static_cast<size_t>(tensor.bytes())};
}

// A hash of the bits of all outputs of all ranks.
uint64_t hashOutputs(const LayerData& data);

}  // namespace sluice
