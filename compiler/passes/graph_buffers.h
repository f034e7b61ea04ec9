// The buffers of a program that form-tasks makes from the tensors of a moe.graph.
//
// A tensor that goes to the caller or to a later entry is one buffer under that name; inputs of the same name
// are one buffer; everything else is a temporary under the tensor's name, with the entry's before it where
// the name is taken.
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

  // Makes the buffers of the entry's inputs and results. Entries are entered in order.
  void enter(moe::EntryOp entry);

  // The buffer of a tensor of an entry that was entered; none for null.
  BufferId of(mlir::Value value) const { return value ? ids_.at(value) : BufferId{}; }

  // A temporary that no tensor stands for.
  BufferId addTemp(llvm::StringRef entry, const std::string& name, std::vector<Dim> shape, DType type);

  // All of them so far, by BufferId.
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
