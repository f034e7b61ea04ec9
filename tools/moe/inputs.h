// Random inputs of a program: seeded, ragged, with a choice of routings.
//
// Free functions on values; any thread. The same spec gives the same bits; each rank is made independently.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

enum class RoutingKind : uint8_t {
  kUniform,    // K distinct experts, all equally likely
  kZipf,       // the n-th most popular expert has weight 1 / n^exponent; popularity is a random order
  kOneHot,     // every token has one pair, all with the same expert; the other pairs are masked
  kHalfEmpty,  // uniform over the lower half of the experts (at least K): the others get no row
  kMasked,     // uniform, but every pair is masked (id -1) with probability 1/4
  kHotRank,    // the first rank (or group that shares experts) has `factor` times the mean rows of all; else
               // uniform
};

struct RoutingSpec {
  RoutingKind kind = RoutingKind::kUniform;
  double exponent = 1.0;  // kZipf
  double factor = 1.0;    // kHotRank
};

// "uniform", "zipf:1.2", "onehot", "half-empty", "masked", "hot-rank:2.5".
Expected<RoutingSpec> parseRouting(std::string_view text);

struct TokensSpec {
  bool ragged = false;          // each rank has a random number from most/4 to most, each group if its ranks
                                // have the same tokens
  int64_t most = 0;             // if not ragged, every rank has this many
  std::vector<int64_t> counts;  // if not empty, replaces the others: one per rank
};

// "128", "ragged:128", or a list with one number per rank: "0,17,128,1".
Expected<TokensSpec> parseTokens(std::string_view text);

struct InputsSpec {
  TokensSpec tokens;
  RoutingSpec routing;
  uint64_t seed = 1;
};

// Error: a hot rank with more or fewer rows than its experts, or all others, can get (found, expected).
Status checkRouting(const TaskProgram& program, const RoutingSpec& routing);

// T of every rank. Errors: from checkRouting(); more than the program's maxTokens; a list that does not have
// one number per rank, or has different ones for ranks that must have the same tokens.
Expected<std::vector<int64_t>> tokensOfRanks(const TaskProgram& program, const InputsSpec& spec);

// Whether an entry reads expert ids; otherwise every token goes to every expert.
bool hasExpertIds(const TaskProgram& program);

// R of a rank if every token goes to every expert, from T of every rank.
int64_t rowsWithoutIds(const TaskProgram& program, int rank, const std::vector<int64_t>& tokens);

// The inverse where only R is known: T of a rank if ranks (groups, if their ranks have the same tokens) share
// the tokens evenly, the first ones one more. Errors: rows that are not a multiple of the rank's experts, or
// more than max_tokens allows (found, expected).
Expected<int64_t> tokensOfRows(const TaskProgram& program, int rank, int64_t rows);

// Those inputs of one rank from which its routing follows, as makeProgramInputs() makes them: expert ids and
// places of experts.
TensorMap makeRoutingInputs(const TaskProgram& program, const InputsSpec& spec, int rank, int64_t tokens);

// All inputs of one rank, and a start for each gradient that a run adds to. Weights of products have variance
// 1 / fan-in and other tensors variance 1, so that all intermediate tensors are of order 1; expert weights of
// one token are positive and sum to 1. The ranks of a group have parts of the same tensors
// (tools/moe/shard.h), and the same tokens if the program says so. A whole tensor's bits depend only on its
// name, type, shape and group (tensors of tokens of its own: rank), and the seed; the weights of a product of
// tokens are the same at every rank. Errors: an input with extent rows of a program with expert ids, which
// only a run can make (else `rows` is rowsWithoutIds()); an input that no op can read.
Expected<TensorMap> makeProgramInputs(const TaskProgram& program, const InputsSpec& spec, int rank,
                                      int64_t tokens, int64_t rows = 0);

}  // namespace sluice::tools
