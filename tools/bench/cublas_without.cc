// This is what a build without CUDA, or without the headers of cuBLAS, has instead.
#include "tools/bench/cublas.h"

namespace sluice::cublas {
namespace {

constexpr const char* kWithout = "this build has no cuBLAS: its headers, or nvcc, were not found";

}  // namespace

Failure open(Library** /*library*/) { return kWithout; }
void close(Library* /*library*/) {}
int readVersion(const Library* /*library*/) { return 0; }
bool multipliesGroups(const Library* /*library*/) { return false; }
Failure multiply(Library* /*library*/, const Layout& /*layout*/, const Sizes& /*sizes*/, const void* /*left*/,
                 const void* /*right*/, void* /*result*/) {
  return kWithout;
}
Failure multiplyGroups(Library* /*library*/, const Layout& /*layout*/, int /*count*/, const Sizes* /*sizes*/,
                       const void* const* /*lefts*/, const void* const* /*rights*/,
                       void* const* /*results*/) {
  return kWithout;
}
Failure begin(Library* /*library*/) { return kWithout; }
Failure end(Library* /*library*/, double* /*seconds*/) { return kWithout; }

}  // namespace sluice::cublas
