// OpenBLAS's products in fp32. The library is loaded where it is used.
#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>
#include <type_traits>

#include "tools/bench/peer_products.h"

namespace sluice::tools {
namespace {

constexpr const char* kFile = "libopenblas.so.0";

// Values of CBLAS's enumerations.
constexpr int kRowMajor = 101, kAsStored = 111, kTransposed = 112;
// openblas_get_parallel()
constexpr int kParallelByOpenMp = 2;

// Functions of the library, with names as there.
struct OpenBlas {
  void (*sgemm)(int order, int transA, int transB, int m, int n, int k, float alpha, const float* a, int lda,
                const float* b, int ldb, float beta, float* c, int ldc) = nullptr;
  void (*setThreads)(int threads) = nullptr;
  int (*threads)() = nullptr;
  int (*parallel)() = nullptr;
  const char* (*config)() = nullptr;
  const char* (*corename)() = nullptr;
  int (*endThreads)() = nullptr;

  // Its threads spin after a product. While one is set, no product starts others.
  void stop() const {
    if (threads() <= 1) return;  // to set one again would start them
    setThreads(1);
    endThreads();
  }
};

Expected<OpenBlas> load() {
  void* const file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr)
    return Error{fmt::format("{} was not found: install it (apt-get install libopenblas0-pthread)", kFile)};
  OpenBlas library;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
    if (function == nullptr) missing = name;
  };
  find(library.sgemm, "cblas_sgemm");
  find(library.setThreads, "openblas_set_num_threads");
  find(library.threads, "openblas_get_num_threads");
  find(library.parallel, "openblas_get_parallel");
  find(library.config, "openblas_get_config");
  find(library.corename, "openblas_get_corename");
  find(library.endThreads, "blas_thread_shutdown_");
  if (missing != nullptr)
    return Error{
        fmt::format("{} has no {}: install libopenblas0-pthread (apt-get install "
                    "libopenblas0-pthread)",
                    kFile, missing)};
  library.stop();  // loading has started them
  return library;
}

// The library is loaded once and never closed, because its threads may run.
const Expected<OpenBlas>& openBlas() {
  static const Expected<OpenBlas> library = load();
  return library;
}

class OpenBlasProducts final : public PeerProducts {
 public:
  OpenBlasProducts(const OpenBlas& library, const RowsCase& rows) : library_(library), c_(rows) {}

  void prepare(LayerProduct, int, const std::byte*) override {}

  void multiply(LayerProduct product, int expert, int, const std::byte* a, const std::byte* b,
                std::byte* c) override {
    const ProductShape s = productShape(product, c_, c_.rows[static_cast<size_t>(expert)]);
    const auto m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
    library_.sgemm(kRowMajor, s.transposedA ? kTransposed : kAsStored,
                   s.transposedB ? kTransposed : kAsStored, m, n, k, 1, reinterpret_cast<const float*>(a),
                   s.transposedA ? m : k, reinterpret_cast<const float*>(b), s.transposedB ? k : n, 0,
                   reinterpret_cast<float*>(c), n);
  }

  void useThreads(int threads) override { threads > 1 ? library_.setThreads(threads) : library_.stop(); }
  void endThreads() override { library_.stop(); }
  bool threadsAreOpenMp() const override { return library_.parallel() == kParallelByOpenMp; }

 private:
  const OpenBlas& library_;
  const RowsCase& c_;
};

}  // namespace

// For example "OpenBLAS 0.3.21 (Zen kernels)", from "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...".
Expected<std::string> openBlasVersion() {
  const Expected<OpenBlas>& library = openBlas();
  if (!library) return library.error();
  const std::string_view config = library->config();
  const std::string_view version = config.substr(0, config.find(' ', config.find(' ') + 1));
  return fmt::format("{} ({} kernels)", version, library->corename());
}

Expected<std::unique_ptr<PeerProducts>> makeOpenBlasProducts(const ProductsSetup& setup) {
  const Expected<OpenBlas>& library = openBlas();
  if (!library) return library.error();
  return std::unique_ptr<PeerProducts>(new OpenBlasProducts(*library, *setup.rows));
}

}  // namespace sluice::tools
