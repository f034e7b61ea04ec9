// What the peer needs of cuBLAS, in plain types: nvcc does not compile the headers of fmt. The library is
// loaded when it is opened, so that no program needs it.
//
// A function that fails returns what cuBLAS or CUDA said, a text that stays; null: nothing was wrong. Of a
// build without CUDA or the headers of cuBLAS all do.
#pragma once

#include <cstddef>

namespace sluice::cublas {

using Failure = const char*;

// On the device that the calling thread has chosen, with a stream of its own.
struct Library;
Failure open(Library** library);
void close(Library* library);
int readVersion(const Library* library);  // as cublasGetVersion() returns it: 130100 is 13.1.0
bool multipliesGroups(const Library* library);

// row-major: result [rows, columns] = left [rows, sum] x right [sum, columns] of bf16, stored the other way
// round where transposed; fp32 sums. Contiguous.
struct Layout {
  bool isLeftTransposed, isRightTransposed, isResultFloat;
};
struct Sizes {
  int rows, columns, sum;
};
Failure multiply(Library* library, const Layout& layout, const Sizes& sizes, const void* left,
                 const void* right, void* result);
// `count` products of different sizes by one call. The arrays of `count` pointers are on the device.
Failure multiplyGroups(Library* library, const Layout& layout, int count, const Sizes* sizes,
                       const void* const* lefts, const void* const* rights, void* const* results);

// The time between the two on the device, of all that is multiplied in between; ends when it is done.
Failure begin(Library* library);
Failure end(Library* library, double* seconds);

}  // namespace sluice::cublas
