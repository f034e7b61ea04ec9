#include "tests/layer/graph_run.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "runtime/program/codec.h"
#include "runtime/program/op_table.h"
#include "tools/evaluate/output_errors.h"

namespace sluice {

Program compileGraph(const std::string& name, const CompileOptions& options) {
  const auto target = loadTarget("targets/cpu.json", {});
  if (!target) FAIL(target.error().message);
  auto tables = compile(std::filesystem::path("graphs/moe_ffn") / name, *target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

LayerData makeGraphData(const Program& program, const tools::InputsSpec& spec) {
  const TaskProgram& tables = program.tables();
  LayerData data;
  data.tokens = *tools::tokensOfRanks(tables, spec);
  for (int rank = 0; rank < tables.mesh.peers(); ++rank) {
    const int64_t tokens = data.tokens[rank];
    data.inputs.push_back(*tools::makeProgramInputs(tables, spec, rank, tokens));
    data.outputs.emplace_back();
    for (uint32_t i = 0; i < tables.buffers.size(); ++i) {
      const Buffer& buffer = tables.buffers[i];
      if (buffer.role != Role::kOutput || buffer.shape[0].extent == Extent::kRows) continue;
      std::vector<int64_t> shape;
      for (const Dim& dim : buffer.shape) shape.push_back(tables.sizeAt(rank, dim, tokens));
      tools::Tensor tensor(buffer.type, std::move(shape));
      if (isAccumulated(tables, {i}))
        std::memcpy(tensor.data(), data.inputs[rank].at(buffer.name).data(), tensor.bytes());
      else if (tensor.bytes() > 0)
        std::memset(tensor.data(), 0xa5, tensor.bytes());
      data.outputs[rank].emplace(buffer.name, std::move(tensor));
    }
  }
  return data;
}

void runGraph(const Program& program, ExecutorKind executor, LayerData& data) {
  const auto body = [&](int rank, Context& context) -> Status {
    for (auto& [name, tensor] : data.outputs[rank])
      if (Status bound = context.bind(name, viewOf(tensor)); !bound) return bound;
    for (auto& [name, tensor] : data.inputs[rank])
      if (!data.outputs[rank].contains(name))
        if (Status bound = context.bind(name, viewOf(tensor)); !bound) return bound;
    for (const Entry& entry : program.tables().entries)
      if (Status ran = context.run(entry.name); !ran) return ran;
    return {};
  };
  for (const Status& result : runRanks(program, {.threads = 2, .executor = executor, .pin = false}, body)) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
}

std::vector<tools::OutputError> errorsOfGraph(const Program& program, const LayerData& data) {
  auto errors = tools::outputErrors(program.verified(), data.inputs, data.outputs, 1);
  if (!errors) FAIL(errors.error().message);
  return *errors;
}

}  // namespace sluice
