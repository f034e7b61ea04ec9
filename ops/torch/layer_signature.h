// LayerSignature: a task program as the PyTorch op sees it: a layer with tensors of known names and shapes.
//
// A value type without pointers. The program has an entry `forward`, from x, expert_ids, expert_weights, the
// weights and possibly placement to y. For training it also has an entry `backward`, from dy and the forward
// tensors that it reads to the gradients dx, d_expert_weights and WEIGHT_grad, as far as the program has
// them; both entries may take and give amaxes. An entry `weight_grads` after `backward` gives the WEIGHT_grad
// if the program has it; here "backward" then means both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

struct WeightSignature {
  std::string name;
  DType type = DType::kBF16;
  std::vector<int64_t> shape;  // at this rank
  bool readByForward = false;
  bool readByBackward = false;

  bool hasGrad = false;
  DType gradType = DType::kF32;
  bool accumulates = false;  // the gradient is added to the old content of its tensor
};

// Rows or gradients that products round by an amax of earlier steps, which the caller gives (delayed scaling,
// docs/PRECISION.md). The program reads the largest magnitude to scale by from its input NAME_amax_used, or
// measures it, and writes this step's largest magnitude to its output NAME_amax. Both are F32 of one shape.
struct AmaxSignature {
  std::string name;
  std::string used, found;     // names of the input and the output
  std::vector<int64_t> shape;  // [experts of this rank, 1], of tokens [1]
  bool readByForward = false;
  bool readByBackward = false;
  bool writtenByForward = false;
  bool writtenByBackward = false;

  bool isOfForward() const { return readByForward || writtenByForward; }
};

struct LayerSignature {
  int64_t hidden = 0;     // columns of x
  int64_t outHidden = 0;  // of y
  int64_t topK = 0;
  int64_t experts = 0;  // of all ranks
  int64_t places = 0;   // of experts, if forward takes a `placement` [places]
  int64_t maxTokens = 0;
  bool hasBackward = false;
  bool delaysWeightGrads = false;              // by an entry `weight_grads`
  std::vector<std::string> readByWeightGrads;  // the caller's tensors that that entry reads
  bool readsExpertWeights = false;
  bool backwardReadsX = false;
  bool backwardReadsExpertWeights = false;
  bool hasDx = false;
  bool hasExpertWeightsGrad = false;
  std::vector<WeightSignature> weights;  // in the order in which they were named
  std::vector<AmaxSignature> amaxes;     // by name
};

// `weights` names the weights in the order of the op's arguments. Errors: entries or tensors are missing,
// superfluous, or of other types or shapes than described above.
Expected<LayerSignature> readSignature(const TaskProgram& program, int rank,
                                       const std::vector<std::string>& weights);

// The amaxes of the entries "forward" and "backward", by name. Errors: other types or shapes than described
// above.
Expected<std::vector<AmaxSignature>> describeAmaxInputs(const TaskProgram& program, int rank);

// Describes the program for people and Python, as JSON: name, limits, entries with the tensors that they read
// and write, and tensors with type, shape (sizes, or "T" and "R") and role.
std::string describeProgram(const TaskProgram& program, int rank);

// The caller's tensors that an entry reads or writes, each once, in the order of the program.
std::vector<BufferId> callersTensors(const TaskProgram& program, EntryId entry, Role role);

}  // namespace sluice
