#include "tests/proof/random_steps.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/program/op_table.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/layer_run.h"

namespace sluice {
namespace {

using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t count) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}

std::vector<int64_t> shapeOf(const TaskProgram& program, const Buffer& buffer, int rank, int64_t tokens,
                             int64_t rows) {
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(rank, dim, tokens, rows));
  return shape;
}

tools::Tensor randomIds(const TaskProgram& program, int64_t tokens, int64_t favoured, Random& random) {
  tools::Tensor ids(DType::kI32, {tokens, program.topK});
  std::vector<int32_t> experts(program.experts);
  std::iota(experts.begin(), experts.end(), 0);
  const int64_t skew = pick(random, 3);  // 0: none, 1: all want one expert, 2: and no other
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(experts.begin(), experts.end(), random);
    if (skew > 0) std::swap(*std::find(experts.begin(), experts.end(), favoured), experts.front());
    for (int64_t k = 0; k < program.topK; ++k) {
      const bool masked = pick(random, 5) == 0 || (skew == 2 && k > 0);
      ids.as<int32_t>()[t * program.topK + k] = masked ? -1 : experts[k];
    }
  }
  return ids;
}

tools::Tensor randomTensor(const Buffer& buffer, std::vector<int64_t> shape, Random& random) {
  tools::Tensor tensor(buffer.type, std::move(shape));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (buffer.type == DType::kBF16) tensor.as<BFloat16>()[i] = toBFloat16(normal(random));
    if (buffer.type == DType::kF32) tensor.as<float>()[i] = normal(random);
  }
  return tensor;
}

// Rows that `rank` receives by the ids of all ranks, or without ids.
int64_t rowsOf(const TaskProgram& program, const std::vector<const tools::Tensor*>& ids,
               const std::vector<int64_t>& tokens, int rank) {
  if (ids.empty()) return tools::rowsWithoutIds(program, rank, tokens);
  int64_t rows = 0;
  for (size_t source = 0; source < ids.size(); ++source) {
    if (!program.mesh.sends(static_cast<int32_t>(source), rank)) continue;
    const tools::Tensor* of = ids[source];
    const int32_t* id = of->as<int32_t>();
    rows += std::count_if(id, id + of->elements(), [&](int32_t e) {
      return e >= 0 && program.deal().owner(e) == program.mesh.groupOf(rank);
    });
  }
  return rows;
}

// What the runtime owns is looked at right after the step.
Status collect(const TaskProgram& program, Context& context, const tools::TensorMap& outputs,
               std::vector<uint64_t>& bits) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kOutput) continue;
    if (const auto own = outputs.find(buffer.name); own != outputs.end()) {
      bits.push_back(hashOf(bytesOf(own->second)));
      continue;
    }
    const auto view = context.output(buffer.name);
    if (!view) return view.error();
    bits.push_back(
        hashOf(std::span(static_cast<const std::byte*>(view->data), static_cast<size_t>(view->bytes()))));
  }
  return {};
}

// Called by any worker before each signal; lets it through.
bool delay(uint64_t seed) {
  static std::atomic<uint64_t> count{0};
  const uint64_t mixed = (count.fetch_add(1, std::memory_order_relaxed) + seed) * 0x9e3779b97f4a7c15u >> 59;
  if (mixed == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (mixed < 6) std::this_thread::yield();
  return true;
}

}  // namespace

RandomStep randomStep(const TaskProgram& program, uint64_t seed) {
  Random random(seed);
  RandomStep step;
  std::vector<int64_t> tokens;
  const auto isAsBefore = [&](int rank) {  // has the tokens of the rank before it
    return program.mesh.tokens == TokenHolders::kSame && program.mesh.shardOf(rank) != 0;
  };
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    const int64_t count = pick(random, 4) == 0 ? pick(random, 2) : pick(random, program.maxTokens + 1);
    tokens.push_back(isAsBefore(rank) ? tokens.back() : count);
  }
  step.inputs.resize(program.mesh.peers());
  step.outputs.resize(program.mesh.peers());
  std::vector<const tools::Tensor*> ids;  // of the first entry that routes, by rank
  for (const Entry& entry : program.entries) {
    if (!entry.expertIds || step.inputs[0].contains(program.at(entry.expertIds).name)) continue;
    const int64_t favoured = pick(random, program.experts);
    for (int rank = 0; rank < program.mesh.peers(); ++rank) {
      tools::Tensor& own = step.inputs[rank][program.at(entry.expertIds).name];
      own = randomIds(program, tokens[rank], favoured, random);
      if (isAsBefore(rank)) {
        const tools::Tensor& before = step.inputs[rank - 1].at(program.at(entry.expertIds).name);
        std::copy_n(before.as<int32_t>(), before.elements(), own.as<int32_t>());
      }
      if (ids.size() < step.inputs.size()) ids.push_back(&own);
    }
  }
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      const std::vector<int64_t> shape =
          shapeOf(program, buffer, rank, tokens[rank], rowsOf(program, ids, tokens, rank));
      if (buffer.role == Role::kInput && !step.inputs[rank].contains(buffer.name))
        step.inputs[rank].emplace(buffer.name, randomTensor(buffer, shape, random));
      if (buffer.role != Role::kOutput || buffer.region) continue;
      tools::Tensor output(buffer.type, shape);
      const int pattern = isAccumulated(program, BufferId{b}) ? 0 : 0xa5;
      if (output.bytes() > 0) std::memset(output.data(), pattern, output.bytes());
      step.outputs[rank].emplace(buffer.name, std::move(output));
    }
  }
  return step;
}

StepsRun runSteps(const Program& program, std::vector<RandomStep>& steps, const ContextOptions& options,
                  uint64_t delays) {
  const TaskProgram& tables = program.tables();
  std::vector<std::vector<uint64_t>> bits(tables.mesh.peers());
  std::vector<std::unique_ptr<FaultyTransport>> wrapped(tables.mesh.peers());
  const auto wrap = [&](int rank, Transport& real) -> Transport& {
    if (delays == 0) return real;
    wrapped[rank] = std::make_unique<FaultyTransport>(
        real, [delays](int, SymmetricHandle, size_t, uint64_t) { return delay(delays); });
    return *wrapped[rank];
  };
  const auto body = [&](int rank, Context& context) -> Status {
    for (RandomStep& step : steps) {
      for (auto* tensors : {&step.inputs[rank], &step.outputs[rank]})
        for (auto& [name, tensor] : *tensors)
          if (Status bound = context.bind(name, viewOf(tensor)); !bound) return bound;
      for (const Entry& entry : tables.entries)
        if (Status ran = context.run(entry.name); !ran) return ran;
      if (Status read = collect(tables, context, step.outputs[rank], bits[rank]); !read) return read;
    }
    return {};
  };
  StepsRun run;
  for (const Status& result : runRanks(program, options, body, wrap))
    if (!result && run.error.empty()) run.error = result.error().message;
  for (const auto& rank : bits) run.bits.insert(run.bits.end(), rank.begin(), rank.end());
  return run;
}

}  // namespace sluice
