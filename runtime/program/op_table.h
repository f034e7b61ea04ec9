// The op table: the facts of every op, for verification, execution, cost, reports, traces and emission.
// program.fbs defines the names (words.h); ops/reference defines what an op computes.
//
// dispatch and combine_return write at the rank at the other end of the piece. A program of one rank may do
// without them: its products gather rows of tokens, and sums read rows where they are. gmm_activation and
// gmm_activation_grad fuse a gmm with the op that reads its product. The product stays in the task, rounded
// to bf16 as if it were stored, so that two separate families give the same bits. A weight gradient sums over
// all rows of its expert, or over all tokens of this rank (space once), and so does a column sum.
//
// A bias, or the second operand of row_dot, that all ranks of a group have whole counts once where the result
// is one of tp terms of a sum (sharding.h): at shard 0.
//
// Constant tables and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/activation_info.h"
#include "runtime/base/id.h"
#include "runtime/program/program.h"

namespace sluice {

// --- Ops -----------------------------------------------------------------------------------------------

// The operands of a family by name, which means the same in all ops. An operand that is absent, or that the
// op lacks, is none.
struct Operands {
  // factors of a product or terms of a sum, and the result
  BufferId a, b, bias, addend, c;
  // the scales of codes that a and the weight b have, and zeros of the latter, and a factor of all of them
  BufferId scaleA, scaleB, zeroB, factorB;
  // the largest magnitudes by which a and b are rounded
  BufferId amaxA, amaxB;
  // the activation, and its gradient
  BufferId gateUp, act, actGrad, gateUpGrad, weightedAct;
  // the routing weight of each row, and its gradient
  BufferId rowWeights, rowWeightGrad;
  // what is moved between ranks: of tokens, of their pairs with experts, of rows, and as it returned
  BufferId tokens, weights, tokenScales, tokenScalars;
  BufferId rows, rowScales, rowScalars;
  BufferId returned, returnedScalars;
  // codes that an op makes or a sum reads, the scales of their blocks, and the scales of an expert's last
  // block
  BufferId codes, codeScales, endScales;
  BufferId columnScale;  // by which columns are multiplied before they are quantised
  BufferId amax;
};

using OperandName = BufferId Operands::*;

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

// What an op computes besides products, for each of its n columns.
enum class VectorWork : uint8_t {
  kNone,
  kElements,  // a number from those at its place in the operands, and the weight of its row
  kActivation,
  kActivationGrad,
  kWeightedSum,
  kColumnSum,
  kRowDot,
  kQuantize,
  kAmax,
  kEncode
};

// What that takes for an element, in operations, and in times that a machine needs to copy and to add one.
// vectorFlops() and taskCost() know what an activation and a weighted sum take.
struct ElementWork {
  int32_t flops = 0;
  int32_t copies = 0;
  int32_t sums = 0;
};

// `shape` has one letter per dimension: T, R and P for the extents; X for T in families over tokens, else R;
// E for the expert axis, which weights of tokens lack; K for top_k; m, n and k for the fields of the tiling;
// i for n columns per input of the activation; c for the columns of the factor that has codes of 8-bit
// floats, of another op n, and s for one per 32 of them; and 1 for 1. The scale of a weight has a number for
// each of equal blocks of it instead.
inline constexpr DType kBf16Only[] = {DType::kBF16};
struct OperandInfo {
  OperandName id = nullptr;
  std::string_view name;  // in graphs and messages
  std::string_view shape;
  // The types that are allowed; messages name the first. All operands of a family for which there are several
  // have the same one, except factors of products: a has codes only if b has, and its kernels must exist.
  std::span<const DType> types = kBf16Only;
  bool optional = false;
  OperandName with = nullptr;  // of a result: it is present exactly if this operand, which is read, is
  bool isFactor = false;
  bool isWeight = false;  // the last two dimensions are swapped if the op is transposed
  bool mayTurn = false;   // the last two dimensions may be swapped
  // A scale names here the operand whose codes it scales; null: it is no scale. It is present exactly if that
  // operand has codes; but codes of a weight need none where a has codes, too. A scale of rows or tokens has
  // one number per row of codes I8, and of codes of 8-bit floats one, BF16, for each 32 numbers of a row.
  OperandName scales = nullptr;
  bool isZero = false;             // of a scale: it has the zeros of these codes, which are optional
  OperandName findAmax = nullptr;  // it is present exactly if this operand is rounded by its amax
  // The extent that it may have instead if there is one rank, whose tasks then read where others wrote: rows
  // gathered from tokens (isGathered()), or rows instead of what returned. kFixed: none.
  Extent inPlace = Extent::kFixed;

  bool scalesRows() const { return scales != nullptr && !shape.empty(); }  // else blocks of a weight
};

struct OpInfo {
  // The kind of core that runs it if matrix and vector cores are separate; kUnified: it needs both in one
  // core.
  CoreKind core = CoreKind::kVector;
  Domain domain = Domain::kRows;
  Cut cut = Cut::kWhole;
  VectorWork vector = VectorWork::kNone;
  ElementWork element = {};
  bool isLinear = false;  // operands may be terms of sums: results are terms of the sum of results then
  bool hasAlpha = false;  // the result is multiplied by a number
  uint16_t transposed =
      0;  // flag of the tiling: the weight lies transposed, [columns, k]; 0: it has no weight
  uint16_t accumulate = 0;  // flag of the tiling: the result is added to the content of its tensor
  std::span<const OperandInfo> reads;
  std::span<const OperandInfo> writes;

  // The row of an operand; null if the op lacks it.
  const OperandInfo* find(OperandName id) const;

  bool isSum() const { return cut == Cut::kRectangles; }       // of products
  bool multiplies() const { return transposed != 0; }          // by a weight
  bool hasFactors() const { return multiplies() || isSum(); }  // of products
  // The fields of the tiling that it uses, besides n; all others are 0.
  bool usesM() const { return isSum(); }
  bool usesK() const { return multiplies() || vector == VectorWork::kWeightedSum; }
  bool usesTileM() const { return isSum(); }
  bool usesTileN() const { return cut != Cut::kWhole; }
  bool usesAlpha() const { return hasFactors() || hasAlpha; }
  bool usesActivation() const {
    return vector == VectorWork::kActivation || vector == VectorWork::kActivationGrad;
  }
};
const OpInfo& findInfo(OpKind op);

// The ranges of n columns of the weight that a family multiplies by; 0: it reads none.
int32_t weightParts(OpKind op, const Tiling& tiling);
bool isTransposed(OpKind op, const Tiling& tiling);
bool accumulates(const Family& family);
// Whether the buffer is a gradient that a family adds to.
bool isAccumulated(const TaskProgram& program, BufferId buffer);

// Removes the absent operands at the ends of both lists, which then are as in files that were written before
// an op had these operands. verify() does this first.
void trimOperands(Family& family);

// The operand at a position of the list, or none if it is absent.
BufferId bufferAt(const std::vector<BufferId>& ids, size_t position);
// All operands by name, or one; none if it is absent, or the op lacks it.
Operands findOperands(const Family& family);
BufferId findBuffer(const Family& family, OperandName operand);
// The place of an operand, which the op must have, in the family's lists; they are made long enough.
BufferId& operandBuffer(Family& family, OperandName operand);

// Whether a task must have all columns: a fused gradient may also sum over the columns of each row, and codes
// that need no other row are made slot by slot.
bool needsWholeRows(const Family& family);

// Whether a family of rows gathers rows of this operand, which has tokens: row r is the row of the token to
// which the pair at position r belongs (RoutingTables::pairOf). Only one rank does, and only of bf16 that is
// not rounded.
bool isGathered(const TaskProgram& program, const Family& family, OperandName operand);

// The domain of its op; but codes by an amax, or in blocks along rows, need no other row.
Domain findDomain(const Family& family);
// The space that is required of a family in space `own`: `own` itself if its domain has it.
SpaceKind spaceFor(const Family& family, SpaceKind own);
// The shape that the op requires of an operand of the family, given the family's space and tiling.
std::vector<Dim> shapeOf(const OperandInfo& operand, const TaskProgram& program, const Family& family);

// The number of tasks per slot, and the part that a task covers: rows m (sums only) and columns n.
int64_t countTiles(OpKind op, const Tiling& tiling);
struct Tile {
  TileRange m, n;
};
Tile findTile(OpKind op, const Tiling& tiling, int32_t tile);

// The numbers of a weight per number of its scale, in the last two dimensions of the weight as it lies: what
// the dimensions of the scale divide, or the squares of codes of 8-bit floats (encoding.h), of which the last
// ones may be smaller. None if the shapes do not fit.
struct Block {
  int64_t rows = 0;
  int64_t columns = 0;
};
std::optional<Block> findBlock(const Buffer& weight, const Buffer& scale);
// The rows or tokens of an op that may have codes with a scale, or null.
OperandName scaledRows(OpKind op);
// Whether they have codes of 8-bit floats, with a scale, read or written, for each block of 32 numbers of a
// row.
bool hasRowBlocks(const TaskProgram& program, const Family& family);

// A sum of products has this flag of the tiling if the row scale multiplies a instead of b where factors are
// rounded.
inline constexpr uint16_t kScalesA = 2;
// The factor, a or b, that has codes of 8-bit floats, or null. Codes in blocks have codeScales and endScales,
// which codes by an amax lack: the scale of each 32 rows of an expert in a column. The scales of the columns
// of a whole block fill its rows one after the other; the scales of an expert's last block, if it is shorter,
// are in the expert's row of endScales.
OperandName codedFactor(const TaskProgram& program, const Family& family);
inline constexpr OperandName kFactors[] = {&Operands::a, &Operands::b};
// The columns of a factor of a sum of products, how a factor of a product is rounded, and the amax of that.
inline int32_t countColumns(const Tiling& tiling, OperandName factor) {
  return factor == &Operands::a ? tiling.m : tiling.n;
}
inline Rounding findRounding(const Tiling& tiling, OperandName factor) {
  return factor == &Operands::a ? tiling.roundA : tiling.roundB;
}
constexpr OperandName findAmax(OperandName factor) {
  return factor == &Operands::a ? &Operands::amaxA : &Operands::amaxB;
}

// Operations per row or token in all tiles together: of the product, and element by element.
int64_t productFlops(OpKind op, const Tiling& tiling);
int64_t vectorFlops(const Family& family);

}  // namespace sluice
