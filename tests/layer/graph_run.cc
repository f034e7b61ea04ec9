#include "tests/layer/graph_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/abi/kernels.h"
#include "runtime/program/codec.h"
#include "runtime/program/op_table.h"
#include "tools/evaluate/output_errors.h"

namespace sluice {

Program compileGraph(const std::string& name, const CompileOptions& options) {
  const auto target = loadTarget("targets/cpu.json", {});
  if (!target) FAIL(target.error().message);
  const auto folder = std::filesystem::path(name.find('/') == name.npos ? "graphs/moe_ffn" : "graphs");
  auto tables = compile(folder / name, *target, options);
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
    const int64_t tokens = data.tokens[rank], rows = tools::rowsWithoutIds(tables, rank, data.tokens);
    data.inputs.push_back(*tools::makeProgramInputs(tables, spec, rank, tokens, rows));
    data.outputs.emplace_back();
    for (uint32_t i = 0; i < tables.buffers.size(); ++i) {
      const Buffer& buffer = tables.buffers[i];
      const bool ofRows = buffer.shape[0].extent == Extent::kRows;
      if (buffer.role != Role::kOutput || (ofRows && tables.entries[0].expertIds)) continue;
      std::vector<int64_t> shape;
      for (const Dim& dim : buffer.shape) shape.push_back(tables.sizeAt(rank, dim, tokens, rows));
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

void runGraph(const Program& program, const ContextOptions& options, LayerData& data) {
  const auto isOfRows = [&](const std::string& name) {
    const auto& buffers = program.tables().buffers;
    return std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& buffer) {
      return buffer.name == name && buffer.shape[0].extent == Extent::kRows;
    });
  };
  const auto body = [&](int rank, Context& context) -> Status {
    for (auto& [name, tensor] : data.outputs[rank]) {
      const auto place = [to = &tensor](std::span<const int32_t> firstRows) -> void* {
        return firstRows.back() == to->shape()[0] ? to->data() : nullptr;
      };
      Status bound = isOfRows(name) ? context.bindRows(name, place) : context.bind(name, viewTensor(tensor));
      if (!bound) return bound;
    }
    for (auto& [name, tensor] : data.inputs[rank])
      if (!data.outputs[rank].contains(name))
        if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
    for (const Entry& entry : program.tables().entries)
      if (Status ran = context.run(entry.name); !ran) return ran;
    return {};
  };
  for (const Status& result : runRanks(program, options, body)) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
}

void runGraph(const Program& program, ExecutorKind executor, LayerData& data) {
  runGraph(program, {.threads = 2, .executor = executor, .pin = false}, data);
}

LayerData runOf(const Program& program, const ContextOptions& options, const LayerData& before) {
  LayerData data;
  data.tokens = before.tokens;
  for (const auto& [from, to] : {std::pair(&before.inputs, &data.inputs), {&before.outputs, &data.outputs}})
    for (const tools::TensorMap& map : *from) {
      to->emplace_back();
      for (const auto& [name, tensor] : map) {
        tools::Tensor copy(tensor.type(), tensor.shape());
        if (copy.bytes() > 0) std::memcpy(copy.data(), tensor.data(), copy.bytes());
        to->back().emplace(name, std::move(copy));
      }
    }
  runGraph(program, options, data);
  return data;
}

void onEveryIsa(const std::function<void()>& body) {
  for (const ops::Isa isa : ops::supportedIsas()) {
    INFO(ops::isaName(isa));
    setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
    body();
    unsetenv("SLUICE_ISA");
  }
}

std::vector<tools::OutputError> errorsOfGraph(const Program& program, const LayerData& data) {
  auto errors = tools::outputErrors(program.verified(), data.inputs, data.outputs, 1);
  if (!errors) FAIL(errors.error().message);
  return *errors;
}

void checkErrors(const std::vector<tools::OutputError>& errors, const Program& program,
                 const LayerData& data) {
  constexpr double kTolerance = 1.2e-2;
  for (const tools::OutputError& error : errors) {
    if (error.relative <= kTolerance) continue;
    const auto rounding = tools::roundingErrors(program.verified(), data.inputs, data.outputs, 1);
    REQUIRE(rounding.ok());
    for (const tools::OutputError& average : *rounding)
      if (average.name == error.name) {
        INFO(error.name << ": found " << error.relative << ", rounding gives " << average.relative);
        CHECK(tools::isAccepted(error.relative, kTolerance, average.relative));
      }
  }
}

}  // namespace sluice
