#include "ops/torch/layer_signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

std::optional<EntryId> findEntry(const TaskProgram& program, std::string_view name) {
  for (uint32_t e = 0; e < program.entries.size(); ++e)
    if (program.entries[e].name == name) return EntryId{e};
  return std::nullopt;
}

// Builds the signature, and finds the tensors that it cannot use.
class Reader {
 public:
  Reader(const TaskProgram& program, int rank, EntryId forward, std::optional<EntryId> backward,
         std::optional<EntryId> weightGrads)
      : program_(program), rank_(rank) {
    note(forward, forwardReads_, forwardWrites_);
    if (backward) note(*backward, backwardReads_, backwardWrites_);
    if (!weightGrads) return;
    signature_.delaysWeightGrads = true;
    note(*weightGrads, backwardReads_, backwardWrites_);
    for (const BufferId id : callersTensors(program, *weightGrads, Role::kInput))
      signature_.readByWeightGrads.push_back(program.at(id).name);
  }

  Expected<LayerSignature> read(const std::vector<std::string>& weights) {
    signature_.topK = program_.topK;
    signature_.experts = program_.experts - program_.spare;
    signature_.maxTokens = program_.maxTokens;
    signature_.hasBackward = !backwardReads_.empty();
    const std::vector<int64_t> pair = {-1, program_.topK};
    const Buffer* x = take(forwardReads_, "x");
    if (!x || !take(forwardReads_, "expert_ids"))
      return Error{"entry 'forward' has no inputs 'x' and 'expert_ids'"};
    if (take(forwardReads_, "placement")) signature_.places = program_.experts;
    const Buffer* y = take(forwardWrites_, "y");
    if (!y) return Error{"entry 'forward' has no output 'y'"};
    signature_.hidden = x->shape.back().size;
    signature_.outHidden = y->shape.back().size;
    expect(x, DType::kBF16, {-1, signature_.hidden});
    expect(y, DType::kBF16, {-1, signature_.outHidden});
    const Buffer* expertWeights = take(forwardReads_, "expert_weights");
    signature_.readsExpertWeights = expertWeights;
    expect(expertWeights, DType::kF32, pair);
    expect(take(backwardReads_, "dy"), DType::kBF16, {-1, signature_.outHidden});
    signature_.backwardReadsX = take(backwardReads_, "x");
    take(backwardReads_, "expert_ids");
    const Buffer* again = take(backwardReads_, "expert_weights");
    signature_.backwardReadsExpertWeights = again;
    expect(again, DType::kF32, pair);
    const Buffer* dx = take(backwardWrites_, "dx");
    signature_.hasDx = dx;
    expect(dx, DType::kBF16, {-1, signature_.hidden});
    const Buffer* dWeights = take(backwardWrites_, "d_expert_weights");
    signature_.hasExpertWeightsGrad = dWeights;
    expect(dWeights, DType::kF32, pair);
    for (const std::string& name : weights) readWeight(name);
    if (Status read = readAmaxes(); !read) return read.error();
    refuseRest();
    if (!error_.empty()) return Error{error_};
    return signature_;
  }

 private:
  using Tensors = std::vector<BufferId>;

  // Adds the tensors of the entry, each once.
  void note(EntryId entry, Tensors& reads, Tensors& writes) const {
    for (auto [tensors, role] : {std::pair(&reads, Role::kInput), std::pair(&writes, Role::kOutput)})
      for (const BufferId id : callersTensors(program_, entry, role))
        if (std::find(tensors->begin(), tensors->end(), id) == tensors->end()) tensors->push_back(id);
  }

  // Null if there is no such tensor.
  const Buffer* take(Tensors& tensors, const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](BufferId id) { return program_.at(id).name == name; });
    if (found == tensors.end()) return nullptr;
    const Buffer* buffer = &program_.at(*found);
    tensors.erase(found);
    return buffer;
  }

  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

  std::vector<int64_t> shapeOf(const Buffer& buffer) const {
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape)
      shape.push_back(dim.extent == Extent::kTokens ? -1 : program_.sizeAt(rank_, dim, 0));
    return shape;
  }

  void expect(const Buffer* buffer, DType type, const std::vector<int64_t>& shape) {
    if (!buffer || (buffer->type == type && shapeOf(*buffer) == shape && !buffer->region)) return;
    fail(fmt::format("tensor '{}' is {} [{}] in the program, expected {} [{}] (-1: tokens)", buffer->name,
                     dtypeName(buffer->type), fmt::join(shapeOf(*buffer), ", "), dtypeName(type),
                     fmt::join(shape, ", ")));
  }

  void readWeight(const std::string& name) {
    WeightSignature weight;
    weight.name = name;
    const Buffer* forward = take(forwardReads_, name);
    const Buffer* backward = take(backwardReads_, name);
    const Buffer* any = forward ? forward : backward;
    if (!any) return fail(fmt::format("the program has no input '{}', which was named as a weight", name));
    weight.readByForward = forward;
    weight.readByBackward = backward;
    weight.type = any->type;
    weight.shape = shapeOf(*any);
    for (const Dim& dim : any->shape)
      if (dim.extent != Extent::kFixed && dim.extent != Extent::kExperts)
        fail(fmt::format("input '{}' was named as a weight, but has tokens or rows", name));
    if (const Buffer* grad = take(backwardWrites_, name + "_grad")) {
      weight.hasGrad = true;
      weight.gradType = grad->type;
      weight.accumulates =
          isAccumulated(program_, BufferId{static_cast<uint32_t>(grad - program_.buffers.data())});
      expect(grad, grad->type, weight.shape);
    }
    signature_.weights.push_back(std::move(weight));
  }

  Status readAmaxes() {
    auto amaxes = describeAmaxInputs(program_, rank_);
    if (!amaxes) return amaxes.error();
    for (const AmaxSignature& amax : *amaxes) {
      for (Tensors* reads : {&forwardReads_, &backwardReads_}) take(*reads, amax.used);
      for (Tensors* writes : {&forwardWrites_, &backwardWrites_}) take(*writes, amax.found);
    }
    signature_.amaxes = *std::move(amaxes);
    return {};
  }

  void refuseRest() {
    for (const Tensors* rest : {&forwardReads_, &backwardReads_})
      if (!rest->empty())
        fail(fmt::format("the program has an input '{}', which was not named as a weight",
                         program_.at(rest->front()).name));
    for (const Tensors* rest : {&forwardWrites_, &backwardWrites_})
      if (!rest->empty())
        fail(fmt::format("the program has an output '{}', which no layer has",
                         program_.at(rest->front()).name));
  }

  const TaskProgram& program_;
  const int rank_;
  Tensors forwardReads_, forwardWrites_, backwardReads_, backwardWrites_;
  LayerSignature signature_;
  std::string error_;
};

constexpr std::string_view kUsed = "_amax_used", kFound = "_amax";

// What stands before a suffix; empty if the name has no such suffix.
std::string beforeSuffix(const std::string& name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
}

class AmaxReader {
 public:
  AmaxReader(const TaskProgram& program, int rank) : program_(program), rank_(rank) {}

  Expected<std::vector<AmaxSignature>> read() {
    for (uint32_t e = 0; e < program_.entries.size(); ++e) {
      const bool isForward = program_.entries[e].name == "forward";
      for (const BufferId id : callersTensors(program_, EntryId{e}, Role::kInput))
        note(program_.at(id), kUsed,
             isForward ? &AmaxSignature::readByForward : &AmaxSignature::readByBackward);
      for (const BufferId id : callersTensors(program_, EntryId{e}, Role::kOutput))
        note(program_.at(id), kFound,
             isForward ? &AmaxSignature::writtenByForward : &AmaxSignature::writtenByBackward);
    }
    std::vector<AmaxSignature> found;
    for (const auto& [name, amax] : amaxes_) found.push_back(amax);
    if (!error_.empty()) return Error{error_};
    return found;
  }

 private:
  void note(const Buffer& buffer, std::string_view suffix, bool AmaxSignature::* use) {
    const std::string name = beforeSuffix(buffer.name, suffix);
    if (name.empty()) return;
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape) {
      if (dim.extent != Extent::kFixed && dim.extent != Extent::kExperts)
        return fail(
            fmt::format("tensor '{}' has tokens or rows, expected one number per expert", buffer.name));
      shape.push_back(program_.sizeAt(rank_, dim, 0));
    }
    if (buffer.type != DType::kF32)
      return fail(fmt::format("tensor '{}' is {}, expected F32", buffer.name, dtypeName(buffer.type)));
    AmaxSignature& amax = amaxes_[name];
    if (!amax.name.empty() && amax.shape != shape)
      return fail(fmt::format("tensors '{}' and '{}' have other shapes", amax.used, amax.found));
    amax.name = name;
    amax.used = name + std::string(kUsed);
    amax.found = name + std::string(kFound);
    amax.shape = shape;
    amax.*use = true;
  }

  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

  const TaskProgram& program_;
  const int rank_;
  std::map<std::string, AmaxSignature> amaxes_;
  std::string error_;
};

}  // namespace

std::vector<BufferId> callersTensors(const TaskProgram& program, EntryId entry, Role role) {
  std::vector<bool> used(program.buffers.size());
  for (const Family& family : program.families) {
    if (family.entry != entry) continue;
    for (const auto* list : {&family.reads, &family.writes})
      for (BufferId id : *list)
        if (id) used[id.value] = true;
  }
  for (const BufferId id : {program.at(entry).expertIds, program.at(entry).placement})
    if (id) used[id.value] = true;
  std::vector<BufferId> tensors;
  for (uint32_t b = 0; b < used.size(); ++b)
    if (used[b] && program.buffers[b].role == role) tensors.push_back({b});
  return tensors;
}

Expected<LayerSignature> readSignature(const TaskProgram& program, int rank,
                                       const std::vector<std::string>& weights) {
  const auto forward = findEntry(program, "forward");
  const auto backward = findEntry(program, "backward");
  const auto weightGrads = backward ? findEntry(program, "weight_grads") : std::nullopt;
  if (!forward) return Error{"the program has no entry 'forward'"};
  for (const Entry& entry : program.entries)
    if (entry.name != "forward" && entry.name != "backward" && !(weightGrads && entry.name == "weight_grads"))
      return Error{
          fmt::format("the program has an entry '{}', expected 'forward' and at most 'backward' and then "
                      "'weight_grads'",
                      entry.name)};
  return Reader(program, rank, *forward, backward, weightGrads).read(weights);
}

Expected<std::vector<AmaxSignature>> describeAmaxInputs(const TaskProgram& program, int rank) {
  return AmaxReader(program, rank).read();
}

}  // namespace sluice
