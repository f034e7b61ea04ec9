// The buffers of a task.program that form-tasks makes from the tensors of a moe.graph.
//
// A tensor that goes to the caller or to a later entry is one buffer under that name; inputs of the same name
// are one buffer; everything else is a temporary under the tensor's name, with the entry's before it where
// the name is taken.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "compiler/dialect/task.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace sluice {

class GraphBuffers {
 public:
  // Buffers are made at the insertion point of `builder`.
  GraphBuffers(mlir::OpBuilder& builder, moe::GraphOp graph);

  // From now on buffers are made before `op`: the first entry, since buffers stand before entries.
  void insertBefore(mlir::Operation* op) { builder_.setInsertionPoint(op); }

  // Makes the buffers of the entry's inputs and results. Entries are entered in order.
  void enter(moe::EntryOp entry);

  // The buffer of a tensor of an entry that was entered.
  std::string nameOf(mlir::Value value) const { return names_.lookup(value); }

  // A temporary that no tensor stands for.
  std::string addTemp(llvm::StringRef entry, const std::string& name, llvm::ArrayRef<int64_t> shape,
                      mlir::Type type, mlir::Location location);

  // The buffer of the expert ids an entry routes by, or the entry whose routing it uses; the other is null.
  mlir::StringAttr idsOf(moe::EntryOp entry) const;
  mlir::StringAttr routingOf(moe::EntryOp entry) const;

  int32_t topK() const { return topK_; }

 private:
  void addInput(moe::InputOp input);
  void addResults(moe::EntryOp entry, moe::NodeOp node);
  void add(llvm::StringRef name, task::Role role, llvm::ArrayRef<int64_t> shape, mlir::Type type,
           mlir::StringAttr alias, mlir::Location location);
  std::string unusedName(llvm::StringRef entry, const std::string& name) const;

  mlir::OpBuilder builder_;
  int32_t topK_;
  llvm::StringSet<> reserved_;  // names of inputs, outputs and saved tensors
  llvm::StringSet<> taken_;
  llvm::DenseMap<mlir::Value, std::string> names_;
  llvm::StringMap<moe::EntryOp> routings_;  // by the name a routing is saved under
};

}  // namespace sluice
