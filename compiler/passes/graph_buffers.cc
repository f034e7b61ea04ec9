#include "compiler/passes/graph_buffers.h"

namespace sluice {
namespace {

// The run-time extents of `moe` have the numbers of `task`.
static_assert(moe::MoeTensorType::kTokens == task::BufferOp::kTokens);
static_assert(moe::MoeTensorType::kRows == task::BufferOp::kRows);
static_assert(moe::MoeTensorType::kExperts == task::BufferOp::kExperts);

moe::RouteOp routeOf(moe::EntryOp entry) {
  const auto routes = entry.getOps<moe::RouteOp>();
  return routes.empty() ? moe::RouteOp() : *routes.begin();
}

}  // namespace

GraphBuffers::GraphBuffers(mlir::OpBuilder& builder, moe::GraphOp graph)
    : builder_(builder), topK_(static_cast<int32_t>(graph.getTopK())) {
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
      names_[saved.getValue()] = saved.getTensor().str();
    } else if (auto save = llvm::dyn_cast<moe::SaveOp>(op)) {
      if (llvm::isa<moe::RoutingType>(save.getValue().getType())) routings_[save.getTensor()] = entry;
    } else if (auto node = llvm::dyn_cast<moe::NodeOp>(op); node && !llvm::isa<moe::RouteOp>(op)) {
      addResults(entry, node);
    }
  }
}

void GraphBuffers::addInput(moe::InputOp input) {
  names_[input.getValue()] = input.getTensor().str();
  if (taken_.contains(input.getTensor())) return;  // of an earlier entry
  const moe::MoeTensorType type = llvm::cast<moe::MoeTensorType>(input.getValue().getType());
  add(input.getTensor(), task::Role::input, type.getShape(), type.getElementType(), input.getAliasAttr(),
      input.getLoc());
}

void GraphBuffers::addResults(moe::EntryOp entry, moe::NodeOp node) {
  for (mlir::OpResult result : node->getResults()) {
    const auto type = llvm::cast<moe::MoeTensorType>(result.getType());
    std::string name = moe::tensorName(result).str();
    task::Role role = task::Role::temp;
    mlir::StringAttr alias;
    for (mlir::Operation* user : result.getUsers()) {
      if (auto output = llvm::dyn_cast<moe::OutputOp>(user)) {
        name = output.getTensor().str();
        role = task::Role::output;
        alias = output.getAliasAttr();
      } else if (auto save = llvm::dyn_cast<moe::SaveOp>(user)) {
        name = save.getTensor().str();
        role = task::Role::saved;
        alias = save.getAliasAttr();
      }
    }
    if (role == task::Role::temp) {
      if (name.empty()) name = node.getNode().str() + "." + std::to_string(result.getResultNumber());
      names_[result] =
          addTemp(entry.getSymName(), name, type.getShape(), type.getElementType(), node->getLoc());
    } else {
      names_[result] = name;
      add(name, role, type.getShape(), type.getElementType(), alias, node->getLoc());
    }
  }
}

std::string GraphBuffers::addTemp(llvm::StringRef entry, const std::string& name,
                                  llvm::ArrayRef<int64_t> shape, mlir::Type type, mlir::Location location) {
  const std::string unused = unusedName(entry, name);
  add(unused, task::Role::temp, shape, type, {}, location);
  return unused;
}

void GraphBuffers::add(llvm::StringRef name, task::Role role, llvm::ArrayRef<int64_t> shape, mlir::Type type,
                       mlir::StringAttr alias, mlir::Location location) {
  taken_.insert(name);
  builder_.create<task::BufferOp>(location, builder_.getStringAttr(name),
                                  task::RoleAttr::get(builder_.getContext(), role),
                                  builder_.getDenseI64ArrayAttr(shape), mlir::TypeAttr::get(type),
                                  mlir::StringAttr(), alias, mlir::IntegerAttr());
}

std::string GraphBuffers::unusedName(llvm::StringRef entry, const std::string& name) const {
  const auto isFree = [&](const std::string& candidate) {
    return !taken_.contains(candidate) && !reserved_.contains(candidate);
  };
  if (isFree(name)) return name;
  const std::string qualified = entry.str() + "." + name;
  if (isFree(qualified)) return qualified;
  int number = 2;
  while (!isFree(qualified + "." + std::to_string(number))) ++number;
  return qualified + "." + std::to_string(number);
}

mlir::StringAttr GraphBuffers::idsOf(moe::EntryOp entry) const {
  const moe::RouteOp route = routeOf(entry);
  return route ? mlir::StringAttr::get(route->getContext(), nameOf(moe::RouteOp(route).getIds()))
               : mlir::StringAttr();
}

mlir::StringAttr GraphBuffers::routingOf(moe::EntryOp entry) const {
  if (routeOf(entry)) return {};
  for (auto saved : entry.getOps<moe::SavedOp>())
    if (llvm::isa<moe::RoutingType>(saved.getValue().getType()))
      if (moe::EntryOp source = routings_.lookup(saved.getTensor())) return source.getSymNameAttr();
  return {};
}

}  // namespace sluice
