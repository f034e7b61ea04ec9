// Whole layers: the tensors of all ranks put together as those of one rank that has all tokens and experts,
// and cut into those of ranks.
//
// Tensors of tokens are one after the other, by rank, or by group if the ranks of a group have the same
// tokens; tensors of experts by group, each from the parts of its ranks; tensors of rows, only of programs
// with one group, from the parts of the ranks. Other weights are the same at every rank, and their gradients
// are sums over the ranks that have different tokens.
//
// Free functions on values.
#pragma once

#include "tests/layer/graph_run.h"

namespace sluice {

// Gives one rank small integers, so that bf16 stores every number of a layer with reglu exactly: -1, 0 and 1,
// most of them 0; powers of two as expert weights.
void makeLayerExact(LayerData& whole);

bool sameBits(const tools::Tensor& a, const tools::Tensor& b);

// One rank. Fails the test where ranks must have the same bits and do not.
LayerData joinRanks(const Program& program, const LayerData& data);

// The inverse for inputs, with so many tokens per rank; outputs as in makeGraphData(). Gradients that are
// added to must not be among them.
LayerData splitLayer(const Program& program, const LayerData& whole, std::vector<int64_t> tokens);

}  // namespace sluice
