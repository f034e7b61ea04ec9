#include "compiler/passes/graph_buffers.h"

#include "compiler/dialect/element_type.h"

namespace sluice {
namespace {

// A run-time extent of `moe` is the negative of its number in programs.
Dim makeDim(int64_t size) {
  using Tensor = moe::MoeTensorType;
  static_assert(Tensor::kTokens == -static_cast<int64_t>(Extent::kTokens));
  static_assert(Tensor::kRows == -static_cast<int64_t>(Extent::kRows));
  static_assert(Tensor::kExperts == -static_cast<int64_t>(Extent::kExperts));
  return size >= 0 ? Dim{Extent::kFixed, size} : Dim{static_cast<Extent>(-size), 0};
}

Buffer makeBuffer(mlir::Value value, std::string name, Role role) {
  const auto type = llvm::cast<moe::MoeTensorType>(value.getType());
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.type = *findDType(type.getElementType());
  for (int64_t size : type.getShape()) buffer.shape.push_back(makeDim(size));
  buffer.role = role;
  return buffer;
}

}  // namespace

GraphBuffers::GraphBuffers(moe::GraphOp graph) {
  graph.walk([&](mlir::Operation* op) {
    if (auto input = llvm::dyn_cast<moe::InputOp>(op)) reserved_.insert(input.getTensor());
    if (auto output = llvm::dyn_cast<moe::OutputOp>(op)) reserved_.insert(output.getTensor());
    if (auto save = llvm::dyn_cast<moe::SaveOp>(op)) reserved_.insert(save.getTensor());
  });
}

void GraphBuffers::enter(moe::EntryOp entry) {
  for (mlir::Operation& op : entry.getBody().front()) {
    if (auto input = llvm::dyn_cast<moe::InputOp>(op)) {
      addInput(input);
    } else if (auto saved = llvm::dyn_cast<moe::SavedOp>(op)) {
      ids_[saved.getValue()] = byName_.lookup(saved.getTensor());
    } else if (auto node = llvm::dyn_cast<moe::NodeOp>(op); node && !llvm::isa<moe::RouteOp>(op)) {
      addResults(entry, node);
    }
  }
}

void GraphBuffers::addInput(moe::InputOp input) {
  const auto known = byName_.find(input.getTensor());  // if an earlier entry has it
  if (known != byName_.end()) {
    ids_[input.getValue()] = known->second;
    return;
  }
  Buffer buffer = makeBuffer(input.getValue(), input.getTensor().str(), Role::kInput);
  buffer.sharding = input.getSharding().value_or(Sharding::kWhole);
  ids_[input.getValue()] = add(std::move(buffer));
}

void GraphBuffers::addResults(moe::EntryOp entry, moe::NodeOp node) {
  for (mlir::OpResult result : node->getResults()) {
    Buffer buffer = makeBuffer(result, moe::tensorName(result).str(), Role::kTemp);
    const auto goesTo = [&](auto user, Role role) {
      if (!user) return;
      buffer.name = user.getTensor().str();
      buffer.role = role;
    };
    for (mlir::Operation* user : result.getUsers()) {
      if (auto output = llvm::dyn_cast<moe::OutputOp>(user))
        buffer.sharding = output.getSharding().value_or(Sharding::kWhole);
      goesTo(llvm::dyn_cast<moe::OutputOp>(user), Role::kOutput);
      goesTo(llvm::dyn_cast<moe::SaveOp>(user), Role::kSaved);
    }
    if (buffer.role == Role::kTemp) {
      if (buffer.name.empty())
        buffer.name = node.getNode().str() + "." + std::to_string(result.getResultNumber());
      buffer.name = unusedName(entry.getSymName(), buffer.name);
    }
    ids_[result] = add(std::move(buffer));
  }
}

BufferId GraphBuffers::addTemp(llvm::StringRef entry, const std::string& name, std::vector<Dim> shape,
                               DType type) {
  Buffer buffer;
  buffer.name = unusedName(entry, name);
  buffer.type = type;
  buffer.shape = std::move(shape);
  return add(std::move(buffer));
}

BufferId GraphBuffers::add(Buffer buffer) {
  const BufferId id{static_cast<uint32_t>(buffers_.size())};
  byName_[buffer.name] = id;
  buffers_.push_back(std::move(buffer));
  return id;
}

std::string GraphBuffers::unusedName(llvm::StringRef entry, const std::string& name) const {
  const auto isFree = [&](const std::string& candidate) {
    return !byName_.contains(candidate) && !reserved_.contains(candidate);
  };
  if (isFree(name)) return name;
  const std::string qualified = entry.str() + "." + name;
  if (isFree(qualified)) return qualified;
  int number = 2;
  while (!isFree(qualified + "." + std::to_string(number))) ++number;
  return qualified + "." + std::to_string(number);
}

}  // namespace sluice
