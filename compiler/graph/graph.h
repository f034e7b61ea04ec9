// Graph: what a graph file says, with its symbols set. Form of the file: graphs/FORMAT.md.
//
// Value type. A Graph that readGraph() returns is well formed: names are valid and unique, every tensor is
// defined once and used, nodes stand in topological order, sizes are numbers inside the limits of program.h.
// Shapes are checked against what the ops want by the verifiers of the `moe` dialect, after import.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/id.h"
#include "runtime/program/program.h"

namespace sluice {

using TensorId = Id<struct GraphTensorTag>;

// Where in the graph file something is said; both count from 1, columns in bytes.
struct SourcePos {
  int32_t line = 0;
  int32_t column = 0;
  friend bool operator==(const SourcePos&, const SourcePos&) = default;
};

struct GraphSymbol {
  std::string name;
  int64_t value = 0;  // as set, or the default
  int64_t initial = 0;
  int64_t min = 0;
  int64_t max = 0;
  std::string doc;
  friend bool operator==(const GraphSymbol&, const GraphSymbol&) = default;
};

struct GraphTensor {
  std::string name;
  std::string alias;  // the reference name, or empty
  bool routing = false;
  DType type = DType::kF32;  // not of a routing, nor is the shape
  std::vector<Dim> shape;  // extents kFixed, kTokens, kRows and, where ranks own different numbers, kExperts
  SourcePos pos;
  friend bool operator==(const GraphTensor&, const GraphTensor&) = default;
};

// A tensor named by an entry or a node.
struct TensorUse {
  TensorId tensor;
  SourcePos pos;
  friend bool operator==(const TensorUse&, const TensorUse&) = default;
};

enum class GraphOp : uint8_t {
  kRoute = 0,
  kDispatch = 1,
  kGmm = 2,
  kGmmWeightGrad = 3,
  kActivation = 4,
  kActivationGrad = 5,
  kCombine = 6,
  kAdd = 7,
  kScale = 8,
};

enum class GraphSpace : uint8_t { kTokens = 0, kRows = 1, kExperts = 2 };

struct GraphSplit {
  GraphSpace space = GraphSpace::kRows;
  int64_t size = 0;  // 0: the producer's
  friend bool operator==(const GraphSplit&, const GraphSplit&) = default;
};

// How the reference plan splits a node: on dimension `dim` of the inputs listed (none: a source), `rows` a
// tile.
struct ReferenceSplit {
  std::optional<std::vector<int64_t>> inputs;
  std::optional<int64_t> dim;
  int64_t rows = 0;
  friend bool operator==(const ReferenceSplit&, const ReferenceSplit&) = default;
};

// What the reference plan says of a node; kept for comparison, without effect on the program.
struct ReferencePlan {
  using Slots = std::vector<std::pair<std::string, int64_t>>;
  std::string core;       // "cube", "vector" or empty
  Slots inputs, outputs;  // parameter slots by the reference's names
  std::optional<int64_t> tiling;
  std::optional<ReferenceSplit> split;
  std::string after;  // the node it waits for, or empty: those that make its inputs
  friend bool operator==(const ReferencePlan&, const ReferencePlan&) = default;
};

struct GraphNode {
  std::string name;
  std::string alias;
  GraphOp op = GraphOp::kGmm;
  std::vector<TensorUse> inputs;   // by position in schemaOf(op).inputs; none where an optional one is absent
  std::vector<TensorUse> outputs;  // likewise
  bool transpose = false;          // gmm only
  bool accumulate = false;         // gmm_weight_grad only
  std::optional<double> alpha;     // gmm, gmm_weight_grad and scale only
  std::string kind;                // activations only
  std::optional<double> limit;     // activations of kind swiglu_clamp only
  std::optional<GraphSplit> split;
  std::optional<ReferencePlan> reference;
  SourcePos pos;
  friend bool operator==(const GraphNode&, const GraphNode&) = default;
};

struct GraphEntry {
  std::string name;
  std::string after;  // an earlier entry, or empty
  std::vector<TensorUse> inputs, outputs;
  std::vector<TensorUse> save;   // kept for later entries
  std::vector<TensorUse> saved;  // kept by an entry this one runs after
  std::vector<GraphNode> nodes;  // producers before users, else as in the file
  SourcePos pos;
  friend bool operator==(const GraphEntry&, const GraphEntry&) = default;
};

inline constexpr size_t kMaxGraphEntries = 64;
inline constexpr size_t kMaxGraphNodes = 1024;  // of one entry

struct Graph {
  std::string file;  // as given; for locations
  std::string name;
  std::vector<GraphSymbol> symbols;
  int64_t ranks = 1;
  int64_t experts = 1;
  int64_t topK = 1;
  int64_t maxTokens = 1;
  std::vector<GraphTensor> tensors;
  std::vector<GraphEntry> entries;
  SourcePos pos;
  friend bool operator==(const Graph&, const Graph&) = default;

  const GraphTensor& at(TensorId id) const { return tensors[id.value]; }
};

}  // namespace sluice
