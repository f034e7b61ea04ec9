// GradientBuilder: a backward entry while it is being derived, for the nodes that contribute to it.
//
// Gradients are kept by forward value. A gradient of rows may be *factored*: the routing weight of the row is
// not yet applied. So the products of the backward run on the rows as they arrived, and the weight is applied
// once, by the next activation or in the sum of a weight gradient. The gradient of a routing weight is the
// dot product of the expert's output and its gradient. A product passes it on to its input, since (a W) . g =
// a . (g W'), up to the activation, whose gradient op computes it. So expert outputs are never kept. A bias b
// of the product adds b . g to it.
//
// A tensor with several readers gets the sum of their contributions, the last reader first. Factored
// gradients are added before their weight is applied, so all of them must have the same weight; their dot
// products then need no extra addition.
//
// Holds MLIR values of one graph and must not outlive it. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/dialect/moe.h"
#include "llvm/ADT/StringSet.h"
#include "mlir/IR/IRMapping.h"

namespace sluice::moe {

// The gradient of a tensor; for rows, `value` times `scale` if there is one.
struct Gradient {
  mlir::Value value = {};    // in the backward entry, of the tensor's shape
  mlir::Value scale = {};    // [R] in the backward entry, or null for 1
  mlir::Value weights = {};  // if `scale` is set: the [T,K] weights of the forward that it comes from
  bool wantsDot = false;  // the dot product of `value` and the tensor, per row, is the gradient of `weights`
};

// A result of a node to be created.
struct NewTensor {
  std::string name;  // a number is appended if it is taken
  mlir::Type type;
};

class GradientBuilder {
 public:
  // `kept` maps the forward's values to values of the backward entry; new nodes are appended to it. `needed`
  // are the values of the forward that need a gradient.
  GradientBuilder(EntryOp backward, const mlir::IRMapping& kept, const llvm::DenseSet<mlir::Value>& needed,
                  llvm::StringSet<> tensorNames);

  bool needs(mlir::Value forward) const { return needed_.contains(forward); }
  mlir::Value kept(mlir::Value forward) const { return kept_.lookupOrNull(forward); }

  // The gradient accumulated so far, or null.
  const Gradient* find(mlir::Value forward) const;

  // Records the gradient that `reader` contributes: the first one, or a node that adds it to those before.
  // Fails if the two are weighted differently, or no op adds such tensors: weights, row scalars.
  mlir::LogicalResult add(NodeOp reader, mlir::Value forward, Gradient gradient);

  // Notes that the gradient of `weights` has a part for `bias`, of the forward: for each row its dot product
  // with `rows`.
  void addDot(NodeOp reader, mlir::Value rows, mlir::Value bias, mlir::Value weights);

  // Keeps the gradient [R] of `weights`, to which it adds the parts for biases, until rows next return to the
  // tokens; `rows` are any rows that can be sent with it. Fails if another gradient is already kept.
  mlir::LogicalResult carry(NodeOp reader, mlir::Value rows, mlir::Value scalars, mlir::Value weights);

  // Returns `rows` to their tokens, weighted by `weights` of the forward if not null, together with the kept
  // gradient. The result is the sum over k.
  mlir::FailureOr<mlir::Value> combine(NodeOp reader, mlir::Value routing, mlir::Value rows,
                                       mlir::Value weights, NewTensor sum);

  // Sends the remaining kept gradients with rows that no node reads, because scalars do not travel alone.
  mlir::LogicalResult finish(mlir::Value routing);

  // Adds a node after all others, with the location of `reader`. Absent operands are null.
  mlir::Operation* create(NodeOp reader, llvm::StringRef op, llvm::StringRef node,
                          llvm::ArrayRef<mlir::Value> operands, llvm::ArrayRef<NewTensor> results,
                          llvm::ArrayRef<mlir::NamedAttribute> attributes = {});

  // The value for an output `name`: `value` with that name if a node made it only for this output, else a
  // copy.
  mlir::Value ownedAs(NodeOp reader, mlir::Value value, const std::string& name);

  mlir::OpBuilder& builder() { return builder_; }

 private:
  struct Recorded {
    Gradient gradient;
    NodeOp reader;  // the last one that contributed
  };
  struct Dot {
    NodeOp reader;
    mlir::Value rows, bias, weights;
  };
  struct Carried {
    NodeOp reader;
    mlir::Value rows, scalars, weights;
  };

  mlir::LogicalResult checkAddable(NodeOp reader, mlir::Value forward, const Gradient& gradient,
                                   const Recorded& before);
  void rename(mlir::Value value, llvm::StringRef name);

  mlir::OpBuilder builder_;
  const mlir::IRMapping& kept_;
  const llvm::DenseSet<mlir::Value>& needed_;
  llvm::DenseMap<mlir::Value, Recorded> gradients_;
  llvm::DenseSet<mlir::Value> owned_;  // used by an output
  std::vector<Dot> dots_;
  std::optional<Carried> carried_;
  llvm::StringSet<> nodes_;
  llvm::StringSet<> tensors_;
};

// What a forward keeps for its backward: all; what cannot be recomputed at little cost; or, of that, only
// rows that cannot be dispatched again.
enum class Keep : uint8_t { kAll, kMinimal, kRegather };

// Those of `kept`, values of one entry in the order of its nodes, that need not be kept: they follow from
// inputs, the routing and the remaining values of `kept`.
llvm::DenseSet<mlir::Value> recomputable(llvm::ArrayRef<mlir::Value> kept, Keep keep);

// The name, with a number appended if it is taken; it is taken from then on.
std::string takeName(llvm::StringSet<>& taken, llvm::StringRef name);

// Whether an output is a result of its entry: of tokens or a weight gradient, or of rows that no node reads.
// Other outputs of rows are there for a separate backward.
bool isResult(OutputOp output);

// The tensor's name, or the node's name if the node does not name its results.
std::string valueName(mlir::Value value);

// "dx" for the tensor x of tokens, or of rows if the caller gives it or it is a result; "d_expert_weights";
// "down_weight_grad" for all others.
std::string gradientName(mlir::Value forward);

}  // namespace sluice::moe
