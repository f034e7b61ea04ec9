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
#include "runtime/routing/placement.h"
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
  std::vector<int32_t> experts(program.experts - program.spare);
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

// Every expert has a place, and experts at random have the rest.
std::vector<int32_t> randomPlacement(const TaskProgram& program, Random& random) {
  const int32_t experts = program.experts - program.spare;
  std::vector<int32_t> expertAt(program.experts);
  for (int32_t place = 0; place < program.experts; ++place)
    expertAt[place] = place < experts ? place : static_cast<int32_t>(pick(random, experts));
  std::shuffle(expertAt.begin(), expertAt.end(), random);
  return expertAt;
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

// Rows that `rank` receives by the places of the ids of all ranks, or without ids.
int64_t rowsOf(const TaskProgram& program, const std::vector<std::vector<int32_t>>& places,
               const std::vector<int64_t>& tokens, int rank) {
  if (places.empty()) return tools::rowsWithoutIds(program, rank, tokens);
  int64_t rows = 0;
  for (size_t source = 0; source < places.size(); ++source) {
    if (!program.mesh.sends(static_cast<int32_t>(source), rank)) continue;
    rows += std::count_if(places[source].begin(), places[source].end(), [&](int32_t place) {
      return place >= 0 && program.deal().owner(place) == program.mesh.groupOf(rank);
    });
  }
  return rows;
}

// The places to which the rows of a rank go by an entry that routes.
std::vector<int32_t> listPlaces(const TaskProgram& program, const Entry& entry,
                                const tools::TensorMap& inputs, int rank) {
  const auto values = [&](BufferId id) {
    const tools::Tensor& tensor = inputs.at(program.at(id).name);
    return std::span(tensor.as<int32_t>(), static_cast<size_t>(tensor.elements()));
  };
  const std::span<const int32_t> ids = values(entry.expertIds);
  if (!entry.placement) return {ids.begin(), ids.end()};
  Placement placement;
  if (!placement.set(values(entry.placement), program.experts - program.spare)) return {};
  const std::span<const int32_t> places = placement.place(ids, program.mesh.sourceOf(rank));
  return {places.begin(), places.end()};
}

// What the runtime owns is looked at right after the step.
Status collect(const TaskProgram& program, Context& context, const tools::TensorMap& outputs,
               std::vector<uint64_t>& bits) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kOutput) continue;
    if (const auto own = outputs.find(buffer.name); own != outputs.end()) {
      bits.push_back(hashContent(bytesOf(own->second)));
      continue;
    }
    const auto view = context.output(buffer.name);
    if (!view) return view.error();
    bits.push_back(hashContent(
        std::span(static_cast<const std::byte*>(view->data), static_cast<size_t>(view->bytes()))));
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
  std::vector<std::vector<int32_t>> places;  // of the first entry that routes, by rank
  for (const Entry& entry : program.entries) {
    if (!entry.expertIds || step.inputs[0].contains(program.at(entry.expertIds).name)) continue;
    const int64_t favoured = pick(random, program.experts - program.spare);
    if (entry.placement && !step.inputs[0].contains(program.at(entry.placement).name)) {
      const std::vector<int32_t> expertAt = randomPlacement(program, random);
      for (tools::TensorMap& inputs : step.inputs) {
        tools::Tensor placement(DType::kI32, {program.experts});
        std::copy(expertAt.begin(), expertAt.end(), placement.as<int32_t>());
        inputs.emplace(program.at(entry.placement).name, std::move(placement));
      }
    }
    for (int rank = 0; rank < program.mesh.peers(); ++rank) {
      tools::Tensor& own = step.inputs[rank][program.at(entry.expertIds).name];
      own = randomIds(program, tokens[rank], favoured, random);
      if (isAsBefore(rank)) {
        const tools::Tensor& before = step.inputs[rank - 1].at(program.at(entry.expertIds).name);
        std::copy_n(before.as<int32_t>(), before.elements(), own.as<int32_t>());
      }
      if (places.size() < step.inputs.size())
        places.push_back(listPlaces(program, entry, step.inputs[rank], rank));
    }
  }
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      const std::vector<int64_t> shape =
          shapeOf(program, buffer, rank, tokens[rank], rowsOf(program, places, tokens, rank));
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

Status runStepsAt(int rank, Context& context, const TaskProgram& program, std::vector<RandomStep>& steps,
                  std::vector<uint64_t>& bits) {
  for (RandomStep& step : steps) {
    for (auto* tensors : {&step.inputs[rank], &step.outputs[rank]})
      for (auto& [name, tensor] : *tensors)
        if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
    for (const Entry& entry : program.entries)
      if (Status ran = context.run(entry.name); !ran) return ran;
    if (Status read = collect(program, context, step.outputs[rank], bits); !read) return read;
  }
  return {};
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
  const auto body = [&](int rank, Context& context) {
    return runStepsAt(rank, context, tables, steps, bits[rank]);
  };
  StepsRun run;
  for (const Status& result : runRanks(program, options, body, wrap))
    if (!result && run.error.empty()) run.error = result.error().message;
  for (const auto& rank : bits) run.bits.insert(run.bits.end(), rank.begin(), rank.end());
  return run;
}

}  // namespace sluice
