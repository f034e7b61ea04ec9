#include "tests/testing/layer_run.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/testing/faulty_transport.h"

namespace sluice {
namespace {

// No faults unless the environment requests them.
Expected<FaultPlan> planOfEnvironment() {
  const char* text = std::getenv("SLUICE_FAULTS");
  return parseFaultPlan(text ? text : "");
}

}  // namespace

LayerData makeLayerData(const TaskProgram& program, const tools::InputsSpec& spec) {
  LayerData data;
  data.dims = *tools::moeDimsOf(program);
  data.tokens = *tools::tokensOfRanks(program, spec);
  for (int rank = 0; rank < data.dims.ranks; ++rank) {
    data.inputs.push_back(tools::makeInputs(data.dims, spec, rank, data.tokens[rank]));
    tools::TensorMap outputs;
    for (const char* name : {"y", "dx", "d_expert_weights", "gate_up_weight_grad", "down_weight_grad"}) {
      const tools::MoeTensor tensor = tools::moeTensor(data.dims, name, rank, data.tokens[rank]);
      tools::Tensor output(tensor.type, tensor.shape);
      if (output.bytes() > 0) std::memset(output.data(), 0xa5, output.bytes());
      outputs.emplace(name, std::move(output));
    }
    data.outputs.push_back(std::move(outputs));
  }
  return data;
}

Program programOf(const TaskProgram& tables) {
  auto program = Program::fromTaskProgram(tables);
  if (!program) throw std::runtime_error(program.error().message);
  return std::move(*program);
}

TensorView viewTensor(tools::Tensor& tensor) { return {tensor.type(), tensor.shape(), tensor.data()}; }

Status bindAll(LayerData& data, int rank, Context& context) {
  for (auto* tensors : {&data.inputs[rank], &data.outputs[rank]})
    for (auto& [name, tensor] : *tensors)
      if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
  return {};
}

std::vector<Status> runRanks(const Program& program, const ContextOptions& options, const RankBody& body,
                             const WrapTransport& wrap) {
  const auto plan = planOfEnvironment();
  if (!plan) return {plan.error()};
  FaultyRanks ranks(program.ranks(), *plan);
  std::vector<Status> results(program.ranks());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      Transport& real = ranks.transport(rank);
      auto context = Context::create(program, wrap ? wrap(rank, real) : real, options);
      results[rank] = context ? body(rank, **context) : Status(context.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

Status runLayer(const Program& program, const ContextOptions& options, LayerData& data,
                const std::vector<std::string>& entries, const WrapTransport& wrap) {
  const auto body = [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    for (const std::string& entry : entries)
      if (Status ran = context.run(entry); !ran) return ran;
    return {};
  };
  for (Status& result : runRanks(program, options, body, wrap))
    if (!result) return result;
  return {};
}

std::vector<tools::OutputError> errorsOf(const LayerData& data) {
  std::vector<tools::MoeInputs> inputs;
  std::vector<tools::MoeOutputs> outputs;
  for (int rank = 0; rank < data.dims.ranks; ++rank) {
    inputs.push_back(*tools::moeInputs(data.dims, rank, data.inputs[rank]));
    outputs.push_back(*tools::moeOutputs(data.dims, rank, data.outputs[rank], data.tokens[rank]));
  }
  return *tools::moeErrors(data.dims, inputs, outputs, 1);
}

uint64_t hashOutputs(const LayerData& data) {
  uint64_t hash = 0;
  for (const auto& outputs : data.outputs)
    for (const auto& [name, tensor] : outputs) hash = hashContent(bytesOf(tensor), hash);
  return hash;
}

}  // namespace sluice
