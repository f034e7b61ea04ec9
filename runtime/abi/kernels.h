// The kernel ABI: the arguments that a task passes to its kernel, and the kernels of one instruction set.
//
// A kernel is a free function of plain pointers and sizes. It knows nothing of tasks, events or routing,
// allocates nothing, never waits, and may be called by any thread. Leading dimensions (ld*) are in elements.
// No size needs to be a multiple of anything; any size may be 0. fp32 accumulation, one rounding (to nearest
// even) when a bf16 result is stored. A kernel's result depends on its arguments only. The matrices of a
// product have element types that KernelSet lists; this is checked when a program is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/abi/matrix.h"
#include "runtime/base/activation_info.h"
#include "runtime/base/expected.h"

namespace sluice::ops {

// These are the scales of a matrix of codes: number (i, j), as it lies, is its code times data[s] plus
// zero[s], with s = i / rows * ld + j / columns. Without zeros, codes of 4 bits count from 8: such a code
// less 8 is multiplied. Scales of F16 or BF16 have zeros of I8: the code less zero[s] is multiplied. The
// scales of codes of 4 bits may be codes themselves, E8M0 or E4M3: then the former are E2M1, and number
// (i, j) is the number of its code times the number of data[s].
struct BlockScales {
  const void* data = nullptr;
  int64_t ld = 0;
  int32_t rows = 1;  // of a block
  int32_t columns = 1;
  int32_t firstRow = 0;  // where the operand begins in that matrix
  int32_t firstColumn = 0;
  const void* zero = nullptr;  // with codes of 4 bits only; elements of zeroType(type)
  DType type = DType::kF32;    // the elements of data
};

// The powers of two of codes in blocks of kMxBlock rows of a column. With w = columns / kMxBlock, that of
// column j in a whole block from row i on is scales[(i + j / w) * ld + j mod w], and in the last block, if it
// is shorter, ends[j].
template <class T>
struct CodeScalesOf {
  T* scales = nullptr;  // of the row and column 0 of the matrix
  int64_t ld = 0;
  T* ends = nullptr;
  int32_t columns = 0;      // of the matrix, a multiple of kMxBlock
  int32_t firstColumn = 0;  // where the operand begins in it
};
using CodeScales = CodeScalesOf<const BFloat16>;

// The powers of two of codes in blocks of kMxBlock numbers of a row: that of number (i, j) is data[i * ld + j
// / kMxBlock].
template <class T>
struct RowPowersOf {
  T* data = nullptr;
  int64_t ld = 0;
};
using RowPowers = RowPowersOf<const BFloat16>;

// Where row i of an operand lies in its matrix: at row index[i]; without an index at row i.
struct RowIndex {
  const int32_t* index = nullptr;

  explicit operator bool() const { return index != nullptr; }
  int64_t of(int64_t row) const { return index == nullptr ? row : index[row]; }
};

// c[rows, n] = alpha * a[rows, k] * b + bias, where b is [k, n], or [n, k] when transposeB; alpha multiplies
// the sum in fp32, to which the bias is then added before it is rounded.
//
// b of codes is multiplied by bf16 rows as the bf16 numbers next to its numbers. If a has codes, too, sums of
// products of codes are exact, and every other step is rounded to fp32:
//  * b of I8 has one scale per column of the result, and c[r, n] = sum * (alpha * rowScale[r]) * scale[n] +
//    bias[n]; k is at most kMaxCodes.
//  * b of U8 has blocks of one column and a group of the sum that isGroup() accepts. Stretches of a group, of
//    at most kMaxStretch numbers, add up in order: c[r, n] = (alpha * rowScale[r]) * (sum over stretches of
//    sum * scale + sumOfRow * zero) + bias[n], where sumOfRow is that of the codes of a, without zero if
//    there are none.
//  * without scaleB.data, scale is 1; b of U8 is then in blocks all the same.
struct GmmArgs {
  Operand a;
  Operand b;
  Result c;
  int32_t rows;
  int32_t n;
  int32_t k;
  bool transposeB;
  void* scratch;  // KernelSet::gmmScratchBytes(n of both parts, k, types), 64-byte aligned; overwritten
  float alpha = 1;
  const void* packedB = nullptr;  // the result of packWeight() for b, n, k and transposeB; b is then not read
  const BFloat16* bias = nullptr;   // [n], or null for 0
  const float* rowScale = nullptr;  // [rows], of codes a
  BlockScales scaleB = {};          // of codes b
  // If a and b are both bf16, their numbers are rounded (rounding.h), those that are scaled by these amaxes,
  // others in blocks of kMxBlock of the sum, squares of b also of kMxBlock columns of the result, both from
  // the operand's first number on. Where they are scaled, q(x s) is multiplied, and alpha times 1 / s of a,
  // and then that times 1 / s of b, replaces alpha.
  Rounding roundA = Rounding::kNone;
  Rounding roundB = Rounding::kNone;
  float amaxA = 0;
  float amaxB = 0;
  // These are the powers of a if it has codes of F8_E4M3. Its numbers are multiplied, which are those that
  // roundA would make of bf16 numbers, so k is a multiple of kMxBlock.
  RowPowers powersA = {};
  RowIndex rowsA = {};  // of a, which is bf16 then and not rounded
  // A second part of the product, for the same rows, or null: it differs in b, c, bias and what belongs to b,
  // whose addresses are null only where those of the first part are.
  const GmmArgs* second = nullptr;
};

// packed = b in the form in which gmm multiplies by it, for any rows and alpha; products with it have the
// same bits as products with b itself.
struct PackWeightArgs {
  Operand b;  // as in GmmArgs
  int32_t n;
  int32_t k;
  bool transposeB;
  void* packed;  // KernelSet::packedWeightBytes(n, k, types), 64-byte aligned; read by the same set only
  DType a = DType::kBF16;
  BlockScales scaleB = {};           // of U8, packed with its codes
  Rounding round = Rounding::kNone;  // of b: packed when it is rounded
  float amax = 0;                    // likewise
};

// c[m, n] = alpha * (sum over r of a[r, m] * scale[r] * b[r, n]), in fp32. rows == 0 writes zeros. The
// product a * scale is rounded to bf16 if the unit multiplies bf16. With accumulate the sum, once complete,
// is added to c in one addition, and rows == 0 touches nothing. A bf16 c is widened, added to in fp32 and
// rounded once.
//
// If a or b is rounded, scale multiplies b instead: the bf16 numbers next to scale[r] * b[r, n] are rounded,
// in blocks of kMxBlock rows; where b is scaled, q(b s) is multiplied by scale[r] and rounded to bf16.
// Squares are not rounded here. Amaxes as in GmmArgs. With scalesA this is so of a instead of b.
//
// The factor that is not scaled may have codes of F8_E4M3, as encode() makes them with the rounding and the
// amax that are given for it; `codes` then has their scales, if that rounds in blocks.
struct GmmWeightGradArgs {
  Operand a;
  Operand b;
  const float* scale;  // [rows], or null for 1
  Result c;
  int32_t rows;
  int32_t m;
  int32_t n;
  void* scratch;  // KernelSet::weightGradScratchBytes(m, n)
  bool accumulate = false;
  float alpha = 1;
  Rounding roundA = Rounding::kNone;
  Rounding roundB = Rounding::kNone;
  float amaxA = 0;
  float amaxB = 0;
  bool scalesA = false;
  CodeScales codes = {};
  RowIndex rowsA = {}, rowsB = {};  // of factors that are bf16 then and not rounded
};

// c[j] = sum over r of a[r, j] * scale[r], in order, in fp32. rows == 0 writes zeros. With accumulate the
// sum, once complete, is added to c in one addition, and rows == 0 touches nothing. A bf16 c is widened,
// added to in fp32 and rounded once.
struct ColumnSumArgs {
  const BFloat16* a;
  int64_t lda;
  const float* scale;  // [rows], or null for 1
  Result c;            // [n]: one row; fp32 or bf16
  int32_t rows;
  int32_t n;
  bool accumulate = false;
};

// c[r] = addend[r] + sum over j of a[r, j] * b[j], in fp32.
struct RowDotArgs {
  const BFloat16* a;
  int64_t lda;
  const BFloat16* b;    // [n]
  const float* addend;  // [rows], or null for 0; may be c
  float* c;             // [rows]
  int32_t rows;
  int32_t n;
};

using sluice::ActivationKind;  // runtime/program/program.fbs; runtime/abi/activation.h defines them in double

// The column of up, counted from that of gate; 0 if the kind has no gate.
constexpr int32_t findUpColumn(ActivationKind kind, int32_t column, int32_t inter) {
  if (!findInfo(kind).isGated()) return 0;
  return column > 0 ? column : inter;
}

// act[r, i] = f(gate) * up with gate, up = gateUp[r, i], gateUp[r, upColumn + i]; of a kind without a gate
// f(gateUp[r, i]).
struct ActivationArgs {
  const BFloat16* gateUp;
  int64_t ldGateUp;
  BFloat16* act;
  int64_t ldAct;
  int32_t rows;
  int32_t inter;
  ActivationKind kind = ActivationKind::kSwiglu;
  float limit = 0;       // kSwigluClamp only
  int32_t upColumn = 0;  // at least inter; 0 means inter: gate and up side by side
};

// With d = actGrad[r, i], w = rowWeight[r] and the derivatives of act:
//   gateUpGrad[r, i]                = w * d * (d act / d gate)
//   gateUpGrad[r, upGradColumn + i] = w * d * (d act / d up), unless the kind has no gate
//   rowWeightGrad[r]                = sum over i of d * act[r, i]
//   weightedAct[r, i]               = w * act[r, i], where act is rounded to bf16 as if it were stored
struct ActivationGradArgs {
  const BFloat16* actGrad;
  int64_t ldActGrad;
  const BFloat16* gateUp;
  int64_t ldGateUp;
  const float* rowWeight;  // [rows], or null for 1
  BFloat16* gateUpGrad;
  int64_t ldGateUpGrad;
  float* rowWeightGrad;  // [rows], or null
  int32_t rows;
  int32_t inter;
  ActivationKind kind = ActivationKind::kSwiglu;
  float limit = 0;                                  // kSwigluClamp only
  int32_t upColumn = 0;                             // of gateUp; as in ActivationArgs
  int32_t upGradColumn = 0;                         // of gateUpGrad
  Result weightedAct = {nullptr, 0, DType::kBF16};  // without data: none
};

// c[r, j] = a[r, j] + b[r, j], added in fp32 and rounded once. c may be a or b.
struct AddArgs {
  const BFloat16* a;
  int64_t lda;
  const BFloat16* b;
  int64_t ldb;
  BFloat16* c;
  int64_t ldc;
  int32_t rows;
  int32_t n;
};

// c[r, j] = (alpha * rowWeight[r]) * a[r, j], both products in fp32, rounded once to the type; with an alpha
// of 1 and without weights the bits of a. c may be a.
template <class T>
struct ScaleOf {
  const T* a;
  int64_t lda;
  T* c;
  int64_t ldc;
  int32_t rows;
  int32_t n;
  float alpha;
  const float* rowWeight = nullptr;  // [rows], or null for 1
};
using ScaleArgs = ScaleOf<BFloat16>;
using ScaleF32Args = ScaleOf<float>;

// With x[r, j] = a[r, j] * columnScale[j] and amax, the largest magnitude of row r of x: scale[r] = amax /
// 127 and codes[r, j] = the whole number nearest to x[r, j] * (127 / amax), ties to even, where x, both
// quotients and the product are rounded to fp32. A row whose amax is below kLeastQuantised has codes 0 and
// scale 1; one with a NaN or an infinity in x has codes 0 and scale NaN.
struct QuantizeArgs {
  const BFloat16* a;
  int64_t lda;
  int8_t* codes;
  int64_t ldCodes;
  float* scale;  // [rows]
  int32_t rows;
  int32_t n;
  const float* columnScale = nullptr;  // [n], or null for 1
};
inline constexpr float kLeastQuantised = 0x1p-119F;  // so that no scale is subnormal

// The largest finite magnitude of a[rows, n]; 0 if there is none, or it is subnormal.
struct AmaxArgs {
  const BFloat16* a;
  int64_t lda;
  int32_t rows;
  int32_t n;
  float* amax;
};

// The codes of F8_E4M3 of a, as a product rounds a factor. By an amax they are those of q(x s), and of a NaN
// or an infinity 0x7f, a NaN. In blocks they count by powers: where powers.data is given, a is rounded as gmm
// rounds it, in blocks along its rows; else as gmmWeightGrad does, in blocks from row 0 on, and their powers
// go to `scales`. A block with a NaN or an infinity has codes 0 and a NaN. n and scales.firstColumn are then
// multiples of kMxBlock. a is BF16, or codes of blocks along its rows, whose numbers are rounded again.
struct EncodeArgs {
  Operand a;
  uint8_t* codes;
  int64_t ldCodes;
  CodeScalesOf<BFloat16> scales;
  int32_t rows;
  int32_t n;
  Rounding round;
  float amax = 0;  // as in GmmArgs
  RowPowersOf<BFloat16> powers = {};
  RowPowers powersA = {};  // of codes a
};

// dst[i, :] = src[index[i] / divisor, :] for i < rows; rows of `bytes` bytes, strides in bytes. A row whose
// index is -1 is filled with zeros.
struct GatherRowsArgs {
  const std::byte* src;
  int64_t srcStride;
  const int32_t* index;  // [rows], or null for 0, 1, 2, ...
  int32_t divisor;
  std::byte* dst;
  int64_t dstStride;
  int64_t bytes;
  int32_t rows;
};

// y[t, :] = bias + sum over j < topK, in order, of weight[t, j] * row(position[t * topK + j]), where row(p)
// is the sum over i < parts, in order, of src[p + i * partRows, :]; position -1 adds nothing. fp32 sums, to
// which the bias is added last; rounded once. A single row without weight and bias is its own sum, bit by
// bit.
template <class T>
struct WeightedSumOf {
  const T* src;
  int64_t ldSrc;
  const int32_t* position;  // [tokens, topK]
  const float* weight;      // [tokens, topK], or null for 1
  T* y;
  int64_t ldY;
  int32_t tokens;
  int32_t topK;
  int32_t n;
  int32_t parts = 1;
  int64_t partRows = 0;
  const T* bias = nullptr;  // [n], or null for 0
};
using WeightedSumArgs = WeightedSumOf<BFloat16>;
using WeightedSumF32Args = WeightedSumOf<float>;

// dst[i] = sum over j < parts, in order, of src[position[i] + j * partElements]; position -1 gives 0.
struct SumScalarsArgs {
  const float* src;
  const int32_t* position;  // [count]
  float* dst;
  int64_t count;
  int32_t parts;
  int64_t partElements;
};

enum class Isa : uint8_t { kPortable = 0, kAvx2 = 1, kAvxVnni = 2, kAvx512Bf16 = 3, kAmx = 4 };

// "portable", "avx2", "avxvnni", "avx512", "amx": the values of SLUICE_ISA.
std::string_view isaName(Isa isa);
std::optional<Isa> isaFromName(std::string_view name);

inline constexpr ProductTypes kBf16Product = {DType::kBF16, DType::kBF16, DType::kBF16};
inline constexpr ProductTypes kDecodedProduct = {DType::kBF16, DType::kI8, DType::kBF16};
inline constexpr ProductTypes kCodesProduct = {DType::kI8, DType::kI8, DType::kBF16};
inline constexpr ProductTypes kDecodedHalvesProduct = {DType::kBF16, DType::kU8, DType::kBF16};
inline constexpr ProductTypes kDecodedFloatsProduct = {DType::kBF16, DType::kF8_E4M3, DType::kBF16};
inline constexpr ProductTypes kRoundedCodesProduct = {DType::kF8_E4M3, DType::kBF16, DType::kBF16};
inline constexpr ProductTypes kGroupsProduct = {DType::kI8, DType::kU8, DType::kBF16};

// What a packed weight takes room for beside its codes.
struct PackedScales {
  int32_t group = 0;  // of the sum; 0: none are packed
  bool hasZeros = false;
  DType type = DType::kF32;  // of the scales, which are numbers
  friend constexpr bool operator==(const PackedScales&, const PackedScales&) = default;
};

// gmm for operands of these types.
struct GmmKernels {
  ProductTypes types;
  void (*multiply)(const GmmArgs&);
  void (*packWeight)(const PackWeightArgs&);  // null if b is never packed
  size_t (*scratchBytes)(int32_t n, int32_t k);
  size_t (*packedBytes)(int32_t n, int32_t k, PackedScales scales);  // 0 if b is never packed
};

// The blocks of a product of bf16 that its time depends on.
struct ProductBlocks {
  int32_t columns;  // of a panel of b
  int32_t rows;     // that share one pass over b
  int32_t sum;      // elements after which sums go back to memory
};

// The kernels that multiply, and the element types that they accept.
struct ProductKernels {
  std::span<const GmmKernels> gmms;
  std::span<const ProductTypes> weightGradTypes;
  void (*gmmWeightGrad)(const GmmWeightGradArgs&);
  size_t (*weightGradScratchBytes)(int32_t m, int32_t n);
  ProductBlocks blocks;

  // Null if there are none.
  const GmmKernels* find(const ProductTypes& types) const {
    for (const GmmKernels& each : gmms)
      if (each.types == types) return &each;
    return nullptr;
  }
  // The following need kernels for the types.
  void gmm(const GmmArgs& args) const { find({args.a.type, args.b.type, args.c.type})->multiply(args); }
  void packWeight(const PackWeightArgs& args) const {
    find({args.a, args.b.type, DType::kBF16})->packWeight(args);
  }
  size_t gmmScratchBytes(int32_t n, int32_t k, const ProductTypes& types = kBf16Product) const {
    return find(types)->scratchBytes(n, k);
  }
  size_t packedWeightBytes(int32_t n, int32_t k, const ProductTypes& types = kBf16Product,
                           PackedScales scales = {}) const {
    return find(types)->packedBytes(n, k, scales);
  }
};

// The kernels that go over rows.
struct RowKernels {
  void (*activation)(const ActivationArgs&);
  void (*activationGrad)(const ActivationGradArgs&);
  void (*gatherRows)(const GatherRowsArgs&);
  void (*weightedSum)(const WeightedSumArgs&);
  void (*weightedSumF32)(const WeightedSumF32Args&);
  void (*sumScalars)(const SumScalarsArgs&);
  void (*add)(const AddArgs&);
  void (*scale)(const ScaleArgs&);
  void (*scaleF32)(const ScaleF32Args&);
  void (*columnSum)(const ColumnSumArgs&);
  void (*rowDot)(const RowDotArgs&);
  void (*quantize)(const QuantizeArgs&);
  void (*amax)(const AmaxArgs&);
  void (*encode)(const EncodeArgs&);
};

// All kernels of one instruction set. Immutable; never destroyed.
struct KernelSet : ProductKernels, RowKernels {
  Isa isa;
};

// The instruction sets of this machine, best last, by CPUID and the OS (XCR0); for AMX it also requests the
// tile permission.
std::vector<Isa> supportedIsas();

// The kernels of `isa`; an error names what this machine supports.
Expected<const KernelSet*> kernelsFor(Isa isa);

// The kernels named by the environment variable SLUICE_ISA, or the best ones if it is unset or empty.
Expected<const KernelSet*> selectKernels();

}  // namespace sluice::ops
