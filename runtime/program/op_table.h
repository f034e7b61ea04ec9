// The op table: the facts of every op and of every activation, for verification, execution, cost, reports,
// traces and emission. The names are those of program.fbs (words.h); what an op computes stands in
// ops/<op>/reference.cc.
//
// dispatch and combine_return write at the rank that owns the piece's other end. gmm_activation and
// gmm_activation_grad are a gmm and what reads its product, which stays in the task: it is rounded to bf16 as
// if it were stored, so that the bits are those of the two families. A weight gradient adds all rows of its
// expert, or all tokens of this rank (space once).
//
// Constant tables and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// --- Ops -----------------------------------------------------------------------------------------------

// The spaces that families of an op may be in.
enum class Domain : uint8_t {
  kSends,
  kReturns,
  kTokens,
  kRows,  // rows, groups or tokens
  kSums,  // experts or once
};

// How a slot is cut into tasks.
enum class Cut : uint8_t {
  kWhole,       // one task
  kColumns,     // ranges of tileN of the n columns
  kRectangles,  // tileM x tileN of m x n
};

// What an op computes element by element, for each of its n columns.
enum class VectorWork : uint8_t { kNone, kActivation, kActivationGrad, kScale, kAdd, kWeightedSum };

// `shape` has a letter for each dimension: the extents T, R and P; X, which is T in families over tokens,
// else R; E, the expert axis, which weights of tokens do not have; K, top_k; the fields m, n and k of the
// tiling, and 2, twice n.
inline constexpr DType kBf16Only[] = {DType::kBF16};
struct OperandInfo {
  std::string_view name;
  std::string_view shape;
  std::span<const DType> types = kBf16Only;  // any of these; messages expect the first
  bool optional = false;
  int8_t with = -1;       // of a result: it is there if the operand read at this position is
  bool isWeight = false;  // the last two dimensions change places where the op is transposed
};

struct OpInfo {
  // Where matrix and vector cores are apart; kUnified: it needs both in one, and has none there.
  CoreKind core;
  Domain domain;
  Cut cut;
  VectorWork vector;
  int32_t weightParts;  // ranges of n columns of the weight reads[1] that it multiplies by; 0: it reads none
  uint32_t transposed;  // flag of the tiling: the weight lies transposed, [columns, k]
  uint32_t accumulate;  // flag of the tiling: the result is added to what its tensor holds
  std::span<const OperandInfo> reads;
  std::span<const OperandInfo> writes;

  bool isSum() const { return cut == Cut::kRectangles; }
  // Which fields of the tiling it uses, beside n; all others are 0.
  bool usesM() const { return isSum(); }
  bool usesK() const { return weightParts > 0 || vector == VectorWork::kWeightedSum; }
  bool usesTileM() const { return isSum(); }
  bool usesTileN() const { return cut != Cut::kWhole; }
  bool usesAlpha() const { return weightParts > 0 || isSum() || vector == VectorWork::kScale; }
  bool usesActivation() const {
    return vector == VectorWork::kActivation || vector == VectorWork::kActivationGrad;
  }
};
const OpInfo& infoOf(OpKind op);

bool isTransposed(OpKind op, const Tiling& tiling);
bool accumulates(const Family& family);
// Whether the buffer is a gradient that a family adds to.
bool isAccumulated(const TaskProgram& program, BufferId buffer);

// Operand `index` is there.
bool has(const std::vector<BufferId>& operands, size_t index);
// A fused gradient that also sums over the columns of each row takes a task that has them all.
bool needsWholeRows(const Family& family);

// The space that the op asks of a family which is in space `own`: that, where it may be there.
SpaceKind spaceFor(OpKind op, SpaceKind own);
// What the op asks of an operand of the family, whose space and tiling it has.
std::vector<Dim> shapeOf(const OperandInfo& operand, const TaskProgram& program, const Family& family);

// Tasks of a slot, and what a task covers: rows m (sums only) and columns n.
int64_t tilesOf(OpKind op, const Tiling& tiling);
struct Tile {
  TileRange m, n;
};
Tile tileOf(OpKind op, const Tiling& tiling, int32_t tile);

// Operations on one row or token by all tiles: those of the product, and those element by element.
int64_t productFlops(OpKind op, const Tiling& tiling);
int64_t vectorFlops(const Family& family);

// --- Activations ---------------------------------------------------------------------------------------

struct ActivationInfo {
  bool hasLimit;
  int32_t flops;      // for each element of the result
  int32_t gradFlops;  // likewise of the gradient
};
const ActivationInfo& infoOf(ActivationKind kind);

}  // namespace sluice
