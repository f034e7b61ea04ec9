#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <vector>

#include "tools/bench/cublas.h"

#if __has_include(<cublas_v2.h>)

#include <cublas_v2.h>

namespace sluice::cublas {

// The header overloads the name for C++; this is the function of the library.
using Gemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                const void*, const void*, cudaDataType, int, const void*, cudaDataType, int,
                                const void*, void*, cudaDataType, int, cublasComputeType_t,
                                cublasGemmAlgo_t);

struct Library {
  void* file = nullptr;
  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begun = nullptr, ended = nullptr;
  int version = 0;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) setStream = nullptr;
  decltype(&cublasGetVersion_v2) getVersion = nullptr;
  decltype(&cublasGetStatusString) text = nullptr;
  decltype(static_cast<Gemm>(&cublasGemmEx)) gemm = nullptr;
  decltype(&cublasGemmGroupedBatchedEx) gemmGrouped = nullptr;  // since 12.5
};

namespace {

constexpr const char* kFiles[] = {"libcublas.so.13", "libcublas.so.12",
                                  "/usr/local/cuda/lib64/libcublas.so.13",
                                  "/usr/local/cuda/lib64/libcublas.so.12"};

Failure toFailure(cudaError_t said) { return said == cudaSuccess ? nullptr : cudaGetErrorString(said); }
Failure toFailure(const Library* library, cublasStatus_t said) {
  return said == CUBLAS_STATUS_SUCCESS ? nullptr : library->text(said);
}

template <class Function>
bool find(const Library* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library->file, name));
  return function != nullptr;
}

Failure load(Library* library) {
  for (const char* const file : kFiles)
    if (library->file == nullptr) library->file = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library->file == nullptr) return "libcublas.so.13 and .12 were not found: set LD_LIBRARY_PATH";
  find(library, "cublasGemmGroupedBatchedEx", library->gemmGrouped);
  const bool complete = find(library, "cublasCreate_v2", library->create) &&
                        find(library, "cublasDestroy_v2", library->destroy) &&
                        find(library, "cublasSetStream_v2", library->setStream) &&
                        find(library, "cublasGetVersion_v2", library->getVersion) &&
                        find(library, "cublasGetStatusString", library->text) &&
                        find(library, "cublasGemmEx", library->gemm);
  return complete ? nullptr : "libcublas has not all functions";
}

Failure start(Library* library) {
  if (Failure failed = load(library)) return failed;
  if (Failure failed = toFailure(library, library->create(&library->handle))) return failed;
  if (Failure failed = toFailure(library, library->getVersion(library->handle, &library->version)))
    return failed;
  if (Failure failed = toFailure(cudaStreamCreateWithFlags(&library->stream, cudaStreamNonBlocking)))
    return failed;
  if (Failure failed = toFailure(cudaEventCreate(&library->begun))) return failed;
  if (Failure failed = toFailure(cudaEventCreate(&library->ended))) return failed;
  return toFailure(library, library->setStream(library->handle, library->stream));
}

// A row-major matrix is a column-major one transposed. So a product of row-major matrices is the product of
// its factors in the other order.
struct Call {
  cublasOperation_t first, second;  // of the right and of the left factor
  int m, n, k, lda, ldb, ldc;
};

Call makeCall(const Layout& layout, const Sizes& sizes) {
  return {layout.isRightTransposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          layout.isLeftTransposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          sizes.columns,
          sizes.rows,
          sizes.sum,
          layout.isRightTransposed ? sizes.sum : sizes.columns,
          layout.isLeftTransposed ? sizes.rows : sizes.sum,
          sizes.columns};
}

cudaDataType_t cudaType(const Layout& layout) { return layout.isResultFloat ? CUDA_R_32F : CUDA_R_16BF; }

}  // namespace

Failure open(Library** library) {
  auto* const made = new Library();
  if (Failure failed = start(made)) {
    close(made);
    return failed;
  }
  *library = made;
  return nullptr;
}

void close(Library* library) {
  if (library->handle != nullptr) library->destroy(library->handle);
  if (library->begun != nullptr) cudaEventDestroy(library->begun);
  if (library->ended != nullptr) cudaEventDestroy(library->ended);
  if (library->stream != nullptr) cudaStreamDestroy(library->stream);
  delete library;  // the file stays loaded: its messages are in use, and it may have threads
}

int readVersion(const Library* library) { return library->version; }
bool multipliesGroups(const Library* library) { return library->gemmGrouped != nullptr; }

Failure multiply(Library* library, const Layout& layout, const Sizes& sizes, const void* left,
                 const void* right, void* result) {
  const float one = 1, zero = 0;
  const Call c = makeCall(layout, sizes);
  return toFailure(library, library->gemm(library->handle, c.first, c.second, c.m, c.n, c.k, &one, right,
                                          CUDA_R_16BF, c.lda, left, CUDA_R_16BF, c.ldb, &zero, result,
                                          cudaType(layout), c.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

Failure multiplyGroups(Library* library, const Layout& layout, int count, const Sizes* sizes,
                       const void* const* lefts, const void* const* rights, void* const* results) {
  const auto groups = static_cast<size_t>(count);
  std::vector<cublasOperation_t> first(groups), second(groups);
  std::vector<int> m(groups), n(groups), k(groups), lda(groups), ldb(groups), ldc(groups), one(groups, 1);
  const std::vector<float> alpha(groups, 1), beta(groups, 0);
  for (size_t i = 0; i < groups; ++i) {
    const Call c = makeCall(layout, sizes[i]);
    first[i] = c.first;
    second[i] = c.second;
    m[i] = c.m;
    n[i] = c.n;
    k[i] = c.k;
    lda[i] = c.lda;
    ldb[i] = c.ldb;
    ldc[i] = c.ldc;
  }
  return toFailure(
      library, library->gemmGrouped(library->handle, first.data(), second.data(), m.data(), n.data(),
                                    k.data(), alpha.data(), rights, CUDA_R_16BF, lda.data(), lefts,
                                    CUDA_R_16BF, ldb.data(), beta.data(), results, cudaType(layout),
                                    ldc.data(), count, one.data(), CUBLAS_COMPUTE_32F));
}

Failure begin(Library* library) { return toFailure(cudaEventRecord(library->begun, library->stream)); }

Failure end(Library* library, double* seconds) {
  if (Failure failed = toFailure(cudaEventRecord(library->ended, library->stream))) return failed;
  if (Failure failed = toFailure(cudaStreamSynchronize(library->stream))) return failed;
  float milliseconds = 0;
  const cudaError_t said = cudaEventElapsedTime(&milliseconds, library->begun, library->ended);
  *seconds = 1e-3 * milliseconds;
  return toFailure(said);
}

}  // namespace sluice::cublas

#else

#include "tools/bench/cublas_without.cc"

#endif
