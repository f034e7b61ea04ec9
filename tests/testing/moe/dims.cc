#include "tests/testing/moe/dims.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "tools/io/tensor.h"

namespace sluice::tools {
namespace {

// A number that is no size of any program: represents T when shapes are compared.
constexpr int64_t kTokensMark = -1;

const Buffer* find(const TaskProgram& program, std::string_view name) {
  const auto it = std::find_if(program.buffers.begin(), program.buffers.end(),
                               [&](const Buffer& buffer) { return buffer.name == name; });
  return it == program.buffers.end() ? nullptr : &*it;
}

// At rank 0.
std::vector<int64_t> markedShape(const TaskProgram& program, const Buffer& buffer) {
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(0, dim, kTokensMark, kTokensMark));
  return shape;
}

Status findActivation(const TaskProgram& program, MoeDims& dims) {
  const Family* first = nullptr;
  for (const Family& family : program.families) {
    if (!findInfo(family.op).usesActivation()) continue;
    const auto kind = family.tiling.activation;
    const double limit = toFloat(family.tiling.limit);
    if (first && (kind != dims.activation || limit != dims.limit))
      return Error{fmt::format("program '{}': found other activations in '{}' and '{}', expected one",
                               program.name, first->name, family.name)};
    first = &family;
    dims.activation = kind;
    dims.limit = limit;
  }
  return {};
}

// Branches beside the experts, sums and factors.
Status checkFamilies(const TaskProgram& program) {
  for (const Family& family : program.families) {
    const VectorWork work = findInfo(family.op).vector;
    // what a rank that is alone keeps of its tokens
    if (family.op == OpKind::kScale && program.at(findBuffer(family, &Operands::a)).role == Role::kInput)
      continue;
    const bool dense = findInfo(program.at(family.space).kind).dense && work != VectorWork::kWeightedSum;
    if (dense || effectiveAlpha(family.tiling) != 1 || work == VectorWork::kElements)
      return Error{
          fmt::format("program '{}' is not a MoE-FFN layer: found family '{}'", program.name, family.name)};
  }
  return {};
}

}  // namespace

MoeTensor moeTensor(const MoeDims& d, std::string_view name, int rank, int64_t tokens) {
  const int64_t local = d.deal().of(rank);
  const std::vector<int64_t> pairs = {tokens, d.topK};
  for (std::string_view each : {"x", "dy", "y", "dx"})
    if (name == each) return {each, DType::kBF16, {tokens, d.hidden}};
  if (name == "expert_ids") return {"expert_ids", DType::kI32, pairs};
  for (std::string_view each : {"expert_weights", "d_expert_weights"})
    if (name == each) return {each, DType::kF32, pairs};
  if (name == "gate_up_weight") return {"gate_up_weight", DType::kBF16, {local, d.hidden, d.up()}};
  if (name == "down_weight") return {"down_weight", DType::kBF16, {local, d.inter, d.hidden}};
  if (name == "gate_up_weight_grad") return {"gate_up_weight_grad", DType::kF32, {local, d.hidden, d.up()}};
  if (name == "down_weight_grad") return {"down_weight_grad", DType::kF32, {local, d.inter, d.hidden}};
  return {};
}

Expected<MoeDims> moeDimsOf(const TaskProgram& program) {
  const Buffer* down = find(program, "down_weight");
  if (!down || down->shape.size() != 3)
    return Error{fmt::format("program '{}' is not a MoE-FFN layer: found no tensor 'down_weight' [E, I, H]",
                             program.name)};
  MoeDims dims{
      .ranks = program.mesh.peers(),
      .experts = program.experts,
      .topK = program.topK,
      .maxTokens = program.maxTokens,
      .hidden = down->shape[2].size,
      .inter = down->shape[1].size,
  };
  if (Status status = findActivation(program, dims); !status) return status.error();
  if (Status status = checkFamilies(program); !status) return status.error();
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kInput && buffer.role != Role::kOutput) continue;
    const MoeTensor tensor = moeTensor(dims, buffer.name, 0, kTokensMark);
    // rows go from forward.json to backward.json, compiled apart
    if (tensor.name.empty() && !buffer.shape.empty() && buffer.shape[0].extent == Extent::kRows) continue;
    if (tensor.name.empty())
      return Error{
          fmt::format("program '{}' is not a MoE-FFN layer: found a tensor '{}'", program.name, buffer.name)};
    const std::vector<int64_t> shape = markedShape(program, buffer);
    if (shape != tensor.shape || buffer.type != tensor.type)
      return Error{fmt::format("tensor '{}': found {}, expected {} in a MoE-FFN layer (-1 is T)", buffer.name,
                               describeTensor(buffer.type, shape),
                               describeTensor(tensor.type, tensor.shape))};
  }
  return dims;
}

TaskProgram sketchOf(const MoeDims& dims) {
  TaskProgram program;
  program.mesh.ep = dims.ranks;
  program.experts = dims.experts;
  program.topK = dims.topK;
  program.maxTokens = dims.maxTokens;
  const auto id = [&] { return BufferId{static_cast<uint32_t>(program.buffers.size())}; };
  const auto add = [&](const char* name, DType type, std::vector<Dim> shape) {
    Buffer buffer;
    buffer.name = name;
    buffer.type = type;
    buffer.shape = std::move(shape);
    buffer.role = Role::kInput;
    program.buffers.push_back(std::move(buffer));
  };
  const auto multiply = [&](int64_t k) {  // by the tensor that is added next
    Family family;
    family.op = OpKind::kGmm;
    family.space = SpaceId{0};
    family.tiling.k = static_cast<int32_t>(k);
    family.reads = {BufferId{0}, id()};
    program.families.push_back(std::move(family));
  };
  Space rows;
  rows.kind = SpaceKind::kRows;
  program.spaces.push_back(rows);
  const Dim tokens{Extent::kTokens, 0}, experts{Extent::kExperts, 0};
  const auto fixed = [](int64_t size) { return Dim{Extent::kFixed, size}; };
  for (const char* name : {"x", "dy"}) add(name, DType::kBF16, {tokens, fixed(dims.hidden)});
  Entry entry;
  entry.expertIds = id();
  program.entries.push_back(entry);
  add("expert_ids", DType::kI32, {tokens, fixed(dims.topK)});
  add("expert_weights", DType::kF32, {tokens, fixed(dims.topK)});
  multiply(dims.hidden);
  add("gate_up_weight", DType::kBF16, {experts, fixed(dims.hidden), fixed(dims.up())});
  multiply(dims.inter);
  add("down_weight", DType::kBF16, {experts, fixed(dims.inter), fixed(dims.hidden)});
  return program;
}

TensorMap makeInputs(const MoeDims& dims, const InputsSpec& spec, int rank, int64_t tokens) {
  return *makeProgramInputs(sketchOf(dims), spec, rank, tokens);
}

}  // namespace sluice::tools
