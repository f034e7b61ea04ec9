#include "tests/testing/program_data.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tools/evaluate/evaluate.h"

namespace sluice {
namespace {

using Random = std::mt19937;

// Weights have variance 1 / fan-in, all else is of order 1.
void fillRandom(tools::Tensor& tensor, Random& random) {
  const auto& shape = tensor.shape();
  const bool weight = shape.size() == 3;
  const double half = weight ? std::sqrt(3.0 / static_cast<double>(shape[1])) : 1;
  std::uniform_real_distribution<float> uniform(static_cast<float>(-half), static_cast<float>(half));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    setElement(tensor.type(), tensor.data(), i, uniform(random));
}

// Distinct experts in each row; kMasked leaves out one in four.
void fillExperts(tools::Tensor& tensor, int experts, DataRouting routing, Random& random) {
  const int64_t topK = tensor.shape()[1];
  const int64_t used = routing == DataRouting::kFewExperts ? std::max<int64_t>(topK, experts / 2) : experts;
  std::vector<int32_t> all(used);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tensor.shape()[0]; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    for (int64_t k = 0; k < topK; ++k)
      tensor.as<int32_t>()[t * topK + k] = routing == DataRouting::kMasked && random() % 4 == 0 ? -1 : all[k];
  }
}

tools::Tensor makeTensor(const TaskProgram& program, BufferId id, int rank, int64_t tokens,
                         DataRouting routing, Random& random) {
  const Buffer& buffer = program.at(id);
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(rank, dim, tokens));
  tools::Tensor tensor(buffer.type, shape);
  if (buffer.type == DType::kI32)
    fillExperts(tensor, program.experts, routing, random);
  else if (buffer.role == Role::kInput || isAccumulated(program, id))
    fillRandom(tensor, random);
  else if (tensor.bytes() > 0)
    std::memset(tensor.data(), 0xa5, tensor.bytes());
  return tensor;
}

}  // namespace

LayerData makeProgramData(const TaskProgram& program, const std::vector<int64_t>& tokens, DataRouting routing,
                          uint32_t seed) {
  LayerData data;
  data.tokens = tokens;
  Random random(seed);
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    data.inputs.emplace_back();
    data.outputs.emplace_back();
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (buffer.role != Role::kInput && buffer.role != Role::kOutput) continue;
      auto& tensors = buffer.role == Role::kInput ? data.inputs.back() : data.outputs.back();
      tensors.emplace(buffer.name, makeTensor(program, BufferId{b}, rank, tokens[rank], routing, random));
    }
  }
  return data;
}

std::map<std::string, double> errorsOfProgram(const VerifiedProgram& verified, const LayerData& before,
                                              const LayerData& after, const std::vector<std::string>& entries,
                                              bool roundStored) {
  const TaskProgram& program = *verified;
  std::vector<EntryId> ids;
  for (const std::string& name : entries)
    for (uint32_t e = 0; e < program.entries.size(); ++e)
      if (program.entries[e].name == name) ids.push_back(EntryId{e});
  std::vector<tools::ValueMap> inputs;
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    inputs.push_back(tools::toValues(before.inputs[rank]));
    inputs.back().merge(tools::toValues(before.outputs[rank]));
  }
  const auto exact = tools::evaluate(verified, ids, inputs, {roundStored, 1});
  if (!exact) throw std::runtime_error(exact.error().message);

  std::map<std::string, double> errors;
  for (const auto& [name, unused] : exact->front()) {
    std::vector<tools::Values> found;
    std::vector<const tools::Values*> foundViews, expected;
    for (int rank = 0; rank < program.mesh.peers(); ++rank)
      found.push_back(tools::toValues(after.outputs[rank].at(name)));
    for (int rank = 0; rank < program.mesh.peers(); ++rank) {
      foundViews.push_back(&found[rank]);
      expected.push_back(&exact->at(rank).at(name));
    }
    errors[name] = tools::relativeError(foundViews, expected);
  }
  return errors;
}

}  // namespace sluice
