#include "tests/layer/whole_layer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "tests/testing/parts.h"

namespace sluice {
namespace {

using tools::Tensor;
using Tensors = std::vector<const Tensor*>;

// The ranks whose tokens are different: all, or the first of each group.
std::vector<int> tokenRanks(const Mesh& mesh) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.peers(); ++rank)
    if (mesh.tokens == TokenHolders::kOwn || mesh.shardOf(rank) == 0) ranks.push_back(rank);
  return ranks;
}

Tensor concatenated(const Tensors& parts) {
  std::vector<int64_t> shape = parts[0]->shape();
  shape[0] = 0;
  for (const Tensor* part : parts) shape[0] += part->shape()[0];
  Tensor all(parts[0]->type(), shape);
  std::byte* to = all.data();
  for (const Tensor* part : parts) {
    if (part->bytes() > 0) std::memcpy(to, part->data(), part->bytes());
    to += part->bytes();
  }
  return all;
}

// Indices first .. first + count - 1 of the first dimension.
Tensor sliceOf(const Tensor& tensor, int64_t first, int64_t count) {
  std::vector<int64_t> shape = tensor.shape();
  const int64_t stride = shape[0] == 0 ? 0 : tensor.bytes() / shape[0];
  shape[0] = count;
  Tensor slice(tensor.type(), shape);
  if (slice.bytes() > 0) std::memcpy(slice.data(), tensor.data() + first * stride, slice.bytes());
  return slice;
}

bool isOfTokens(const Buffer& buffer) { return buffer.shape[0].extent == Extent::kTokens; }
bool isOfRows(const Buffer& buffer) { return buffer.shape[0].extent == Extent::kRows; }

// Weights and biases of experts, and their gradients: families of rows read or write them.
bool isOfExperts(const TaskProgram& program, const Buffer& buffer) {
  if (isOfTokens(buffer) || isOfRows(buffer)) return false;
  const auto isThis = [&](BufferId id) { return id && &program.at(id) == &buffer; };
  return std::any_of(program.families.begin(), program.families.end(), [&](const Family& family) {
    return !findInfo(program.at(family.space).kind).dense &&
           (std::any_of(family.reads.begin(), family.reads.end(), isThis) ||
            std::any_of(family.writes.begin(), family.writes.end(), isThis));
  });
}

class Joining {
 public:
  Joining(const Program& program, const std::vector<tools::TensorMap>& ranks)
      : program_(program.tables()), mesh_(program_.mesh), ranks_(ranks) {}

  Tensor join(const Buffer& buffer) const {
    INFO("tensor " << buffer.name);
    if (isOfRows(buffer)) return joinGroup(buffer, 0);
    if (isOfExperts(program_, buffer)) return joinExperts(buffer);
    if (isOfTokens(buffer)) return joinTokens(buffer.name);
    return buffer.role == Role::kInput ? theSame(buffer.name) : sum(buffer.name);
  }

 private:
  const Tensor& at(int rank, const std::string& name) const { return ranks_[rank].at(name); }

  Tensor joinExperts(const Buffer& buffer) const {
    std::vector<Tensor> groups;
    for (int group = 0; group < mesh_.ep; ++group) groups.push_back(joinGroup(buffer, group));
    Tensors pointers;
    for (const Tensor& group : groups) pointers.push_back(&group);
    return concatenated(pointers);
  }

  Tensor joinGroup(const Buffer& buffer, int group) const {
    Tensors parts;
    for (int shard = 0; shard < mesh_.tp; ++shard)
      parts.push_back(&at(group * mesh_.tp + shard, buffer.name));
    if (buffer.sharding == Sharding::kWhole)
      for (const Tensor* part : parts) CHECK(sameBits(*part, *parts[0]));
    return joinParts(parts, buffer.sharding);
  }

  Tensor joinTokens(const std::string& name) const {
    if (mesh_.tokens == TokenHolders::kSame)
      for (int rank = 0; rank < mesh_.peers(); ++rank)
        CHECK(sameBits(at(rank, name), at(rank - mesh_.shardOf(rank), name)));
    Tensors parts;
    for (int rank : tokenRanks(mesh_)) parts.push_back(&at(rank, name));
    return concatenated(parts);
  }

  Tensor theSame(const std::string& name) const {
    for (int rank = 0; rank < mesh_.peers(); ++rank) CHECK(sameBits(at(rank, name), at(0, name)));
    return sliceOf(at(0, name), 0, at(0, name).shape()[0]);
  }

  Tensor sum(const std::string& name) const {
    Tensors terms;
    for (int rank : tokenRanks(mesh_)) terms.push_back(&at(rank, name));
    return joinParts(terms, Sharding::kPartial);
  }

  const TaskProgram& program_;
  const Mesh& mesh_;
  const std::vector<tools::TensorMap>& ranks_;
};

}  // namespace

void makeLayerExact(LayerData& whole) {
  for (auto& [name, tensor] : whole.inputs[0]) {
    if (tensor.type() == DType::kI32) continue;
    const bool isExpertWeight = name == "expert_weights";
    // weights have variance 1 / fan-in, which is the last dimension but one
    const bool isWeight = tensor.shape().size() == 3;
    const double scale = isWeight ? 1 / std::sqrt(static_cast<double>(tensor.shape()[1])) : 1;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = elementAt(tensor.type(), tensor.data(), i) / scale;
      const double power = value < 0.3 ? 0.5 : value < 0.6 ? 1 : 2;
      const double sign = value < -1.2 ? -1 : value > 1.2 ? 1 : 0;
      setElement(tensor.type(), tensor.data(), i, static_cast<float>(isExpertWeight ? power : sign));
    }
  }
}

bool sameBits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

LayerData joinRanks(const Program& program, const LayerData& data) {
  LayerData whole;
  whole.inputs.resize(1);
  whole.outputs.resize(1);
  whole.tokens.resize(1);
  for (int rank : tokenRanks(program.tables().mesh)) whole.tokens[0] += data.tokens[rank];
  for (const Buffer& buffer : program.tables().buffers) {
    if (data.inputs[0].contains(buffer.name))
      whole.inputs[0].emplace(buffer.name, Joining(program, data.inputs).join(buffer));
    if (data.outputs[0].contains(buffer.name))
      whole.outputs[0].emplace(buffer.name, Joining(program, data.outputs).join(buffer));
  }
  return whole;
}

LayerData splitLayer(const Program& program, const LayerData& whole, std::vector<int64_t> tokens) {
  const TaskProgram& tables = program.tables();
  LayerData data = makeGraphData(program, {.tokens = {.counts = std::move(tokens)}});
  int64_t firstToken = 0;
  for (int rank = 0; rank < tables.mesh.peers(); ++rank) {
    const bool last = tables.mesh.tokens == TokenHolders::kOwn || tables.mesh.shardOf(rank + 1) == 0;
    for (const Buffer& buffer : tables.buffers) {
      if (!data.inputs[rank].contains(buffer.name)) continue;
      const Tensor& all = whole.inputs[0].at(buffer.name);
      Tensor& part = data.inputs[rank].at(buffer.name);
      if (isOfTokens(buffer))
        part = sliceOf(all, firstToken, data.tokens[rank]);
      else if (isOfRows(buffer))
        part = cutPart(all, buffer.sharding, tables.mesh.tp, tables.mesh.shardOf(rank));
      else if (isOfExperts(tables, buffer))
        part = cutPart(sliceOf(all, tables.findFirstExpert(rank), tables.countExperts(rank)), buffer.sharding,
                       tables.mesh.tp, tables.mesh.shardOf(rank));
      else
        part = sliceOf(all, 0, all.shape()[0]);
    }
    if (last) firstToken += data.tokens[rank];
  }
  REQUIRE(firstToken == whole.tokens[0]);
  return data;
}

}  // namespace sluice
