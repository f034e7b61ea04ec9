// The host's side of probes: facts of the hardware that kernels rely on, and of which ops/gpu/model is made,
// as small kernels (ops/gpu/probes.h). Plain types, because nvcc and g++ both read it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/gpu/matrix.h"

namespace sluice::gpu {

enum class Probe : uint8_t {
  // out: fp32 [64, N] = a [64, 16] b [16, N] (of maps[0] and maps[1], k from `number` on), added to `in` if
  // there is one. Maps have 64 k, and boxes of 64 columns by 64 rows, or by N where b lies along k.
  kProduct,
  // out: the 8 rows of 128 bytes of the box of maps[0] at (outer, row, column), of which `rows` count.
  kCopyBox,
  // The same box of the map at `uploaded`, in memory of the device; after fenceMap() if number is 1.
  kUploadedMap,
  // Stores (number 0) or adds (1) the 8 rows of 128 bytes at `in` to that box of maps[0].
  kStoreBox,
  // Block 0 writes numbers in several ways (kSignalWays areas of kSignalWords words in `in`; maps[0]: the
  // area
  // number kMappedWay, fp32) and signals counters[0], block 1 reads them and signals counters[8], `number`
  // times. out: by thread and way, how many words were wrong.
  kSignal,
  // out: for each of 4 moments whether a phase has ended.
  kParity,
  // out: by thread of 384, the index of the thread in the mirrored lane, in warpgroups that gave registers
  // back or took some.
  kLanes,
  // As kCopyBox, by a box of one row for each of the 8: row i is row in[i] of the matrix (int32).
  kRowBoxes,
  // Copies `number` bytes from `in` to byte `column` of shared memory, and from there to `out`.
  kBytes,
  // out: a function of each of `number` fp32 at `in`.
  kExponential,
  kReciprocal,
  kPackBf16,  // as the upper half of a word, beside 1 in the lower
  // A launch as large as the kernel's. out: by block, the number of its threads, and how far its shared
  // memory begins after a multiple of 1024 bytes.
  kLaunch,
  // As kRowBoxes, by 16 bytes per thread (copyPart()): row i of the box is 128 bytes from `data` + `pitch` *
  // in[i] on, zeros where in[i] is below 0.
  kRowParts,
  // out: the ns (uint64_t) of `number` times: kTimedRows gathered rows, as kRowParts, or with `column` 1 as
  // kRowBoxes of maps[0]; the same rows, which one warp multiplies by numbers on their way; a fence of 128
  // threads after a store to shared memory, for shared memory only, or with `column` 1 for all memory.
  kTimedRows,
  kTimedScaledRows,
  kTimedFences,
};

inline constexpr int kTimedRows = 128;

inline constexpr int kSignalWays = 5, kSignalWords = 256, kMappedWay = 2;

// How else the operands of a product might have to be described, to find out which is right where the probe
// fails: bits, 0 is how kernels do it. The first two are for the operands with Major::kMn, or where there is
// none for both.
inline constexpr int kOffsetsExchanged = 1;  // the leading offset and the stride
inline constexpr int kLeadingOne = 2;        // the leading offset is 1
inline constexpr int kMajorsInverted = 4;    // in the instruction, for both operands
inline constexpr int kEncodings = 8;

struct ProductForm {
  int columns = 64;  // 64, 128, 192 or 256
  Major a = Major::kK, b = Major::kK;
  int encoding = 0;
};

struct ProbeArguments {
  TensorMap maps[2];
  const TensorMap* uploaded;
  const std::byte* in;
  const std::byte* data;
  int64_t pitch;
  std::byte* out;
  uint64_t* counters;
  uint32_t* late;  // becomes 1 if a wait lasted longer than `limit` ns, after which results are wrong
  uint64_t limit;
  int encoding;  // of kProduct, as in its form
  int number;
  int column, row, outer, rows;
};

struct ProbeLaunch {
  Probe probe = Probe::kProduct;
  ProductForm form;  // of kProduct
  int blocks = 0;    // of kLaunch
  ProbeArguments arguments = {};
};

// Runs a probe on the device of CUDA that the thread has chosen, and waits for its end. Returns what CUDA
// said, a text that stays; null: nothing was wrong.
const char* launchProbe(const ProbeLaunch& launch);

}  // namespace sluice::gpu
