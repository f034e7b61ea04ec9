// The bits of describe() as nvcc compiles it, on the host.
//
// hw.h includes hw_ptx.h where nvcc compiles it, and so it does here, with stubs for what nvcc brings along.
// Names of namespace sluice differ from those of the model, which may be in the same program.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

namespace {

struct Dimension {
  unsigned x;
};
[[maybe_unused]] constexpr Dimension threadIdx{}, blockIdx{}, gridDim{};

// Shared memory begins at this address of its state space; generic pointers count from the array.
alignas(1024) std::byte memory[1024];
size_t sharedBegin = 0;
size_t __cvta_generic_to_shared(const void* pointer) {
  return sharedBegin + static_cast<size_t>(static_cast<const std::byte*>(pointer) - memory);
}
[[maybe_unused]] size_t __cvta_generic_to_global(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
[[maybe_unused]] void __syncwarp() {}
[[maybe_unused]] void __syncthreads() {}
[[maybe_unused]] unsigned __ballot_sync(unsigned, bool) { return 0; }
[[maybe_unused]] unsigned __shfl_sync(unsigned, unsigned, int) { return 0; }
[[maybe_unused]] float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
[[maybe_unused]] void __trap() {}

}  // namespace

#define __CUDACC__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __shared__
#define __expf(x) (x)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define sluice sluice_for_nvcc
#include "ops/gpu/hw.h"
#undef sluice

namespace {

using sluice_for_nvcc::gpu::describe;
using sluice_for_nvcc::gpu::Major;
using sluice_for_nvcc::gpu::swizzled;

// PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", matrix-descriptor format: addresses
// and offsets without their lower four bits.
struct Descriptor {
  uint64_t start : 14, : 2;
  uint64_t leading : 14, : 2;
  uint64_t stride : 14, : 3;
  uint64_t baseOffset : 3, : 10;
  uint64_t swizzle : 2;  // 1: of 128 bytes
};
static_assert(sizeof(Descriptor) == sizeof(uint64_t));

constexpr size_t kSharedBytes = 232'448;  // of a block of sm_90
constexpr uint32_t kPitches[] = {1024, 8192, 16384, 65536, 227'328};

Descriptor described(size_t place, Major major, uint32_t pitch) {
  sharedBegin = place;
  return __builtin_bit_cast(Descriptor, describe(memory, major, pitch));
}

TEST_CASE("a descriptor has the fields of the PTX ISA") {
  for (const Major major : {Major::kK, Major::kMn})
    for (const uint32_t pitch : kPitches)
      for (size_t place = 0; place < kSharedBytes; place += major == Major::kK ? 32 : 1024) {
        CAPTURE(static_cast<int>(major), pitch, place);
        const Descriptor found = described(place, major, pitch);
        REQUIRE(found.start * 16 == place);
        REQUIRE(found.stride * 16 == 1024);
        REQUIRE(found.baseOffset == 0);
        REQUIRE(found.swizzle == 1);
        // unused where k is along the rows
        if (major == Major::kMn) REQUIRE(found.leading * 16 == pitch);
      }
}

// Where the tensor core reads an element in a layout that is swizzled by 128 bytes (PTX ISA, "Strides"):
// along its contiguous dimension an operand has 64 elements in a row, then goes on at the leading offset;
// eights of rows lie at the stride. Parts of 16 bytes are exchanged by bits 7 to 9 of the address.
size_t addressOf(const Descriptor& from, int contiguous, int other) {
  const auto c = static_cast<size_t>(contiguous), o = static_cast<size_t>(other);
  const size_t plain =
      from.start * 16 + c / 64 * (from.leading * 16) + c % 64 * 2 + o / 8 * (from.stride * 16) + o % 8 * 128;
  return plain ^ (plain >> 7 & 7) << 4;
}

TEST_CASE("a descriptor names the places where copies put the elements") {
  for (const size_t area : {size_t{0}, size_t{1024}, size_t{196'608}})
    for (int k = 0; k < 64; k += 16)
      for (int line = 0; line < 256; ++line)
        for (int depth = 0; depth < 16; ++depth) {
          const auto row = static_cast<uint32_t>(line), each = static_cast<uint32_t>(k + depth);
          const Descriptor alongK = described(area + 2 * static_cast<size_t>(k), Major::kK, 0);
          REQUIRE(addressOf(alongK, depth, line) == area + swizzled(row, 2 * each));
          for (const uint32_t pitch : {8192U, 16384U}) {
            const Descriptor alongLines = described(area + 128 * static_cast<size_t>(k), Major::kMn, pitch);
            REQUIRE(addressOf(alongLines, line, depth) ==
                    area + row / 64 * pitch + swizzled(each, row % 64 * 2));
          }
        }
}

}  // namespace
