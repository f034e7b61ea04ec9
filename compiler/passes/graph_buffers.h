// Makes the buffers of a program from the tensors of a moe.graph, for form-tasks.
//
// A tensor that goes to the caller or to a later entry is one buffer with that name; inputs of the same name
// are one buffer; every other tensor is a temporary with the tensor's name, prefixed with the entry's if the
// name is taken.
#pragma once

#include <string>
#include <vector>

#include "compiler/dialect/moe.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "runtime/program/program.h"

namespace sluice {

class GraphBuffers {
 public:
  explicit GraphBuffers(moe::GraphOp graph);

  // Makes the buffers of the entry's inputs and results. Call it for entries in order.
  void enter(moe::EntryOp entry);

  // The buffer of a tensor of an entry that was entered; an invalid id for null.
  BufferId of(mlir::Value value) const { return value ? ids_.at(value) : BufferId{}; }

  // Makes a temporary that has no tensor.
  BufferId addTemp(llvm::StringRef entry, const std::string& name, std::vector<Dim> shape, DType type);

  // All buffers so far, by BufferId.
  const std::vector<Buffer>& all() const { return buffers_; }

 private:
  void addInput(moe::InputOp input);
  void addResults(moe::EntryOp entry, moe::NodeOp node);
  BufferId add(Buffer buffer);
  std::string unusedName(llvm::StringRef entry, const std::string& name) const;

  std::vector<Buffer> buffers_;
  llvm::StringSet<> reserved_;        // names of inputs, outputs and saved tensors
  llvm::StringMap<BufferId> byName_;  // of all buffers
  llvm::DenseMap<mlir::Value, BufferId> ids_;
};

}  // namespace sluice
