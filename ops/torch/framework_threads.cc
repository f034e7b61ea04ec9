#include "ops/torch/framework_threads.h"

#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>
#include <optional>

#include "runtime/base/child_process.h"
#include "runtime/workers/workers.h"

namespace sluice {
namespace {

// It is made when this library is loaded, not on first use: OpenMP libraries need not survive a fork.
const Origin loaded;

// Entry points of the OpenMP library, by GCC's conventions, which the libraries of LLVM and Intel know too.
// It is the one that PyTorch loaded, not one that this library would be linked with: a wheel brings its own.
struct OpenMp {
  void (*parallel)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);
  int (*threadNumber)();
  int (*threads)();
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

std::optional<OpenMp> findOpenMp() {
#if AT_PARALLEL_OPENMP
  Dl_info torch{};
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch) == 0) return {};
  // stays open, like PyTorch
  void* const library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  OpenMp found{};
  if (library && find(library, "GOMP_parallel", found.parallel) &&
      find(library, "omp_get_thread_num", found.threadNumber) &&
      find(library, "omp_get_num_threads", found.threads))
    return found;
#endif
  return {};
}

class FrameworkThreads final : public Team {
 public:
  explicit FrameworkThreads(const OpenMp& openMp) : openMp_(openMp) {}

  bool has(int workers) const override {
    return at::get_num_threads() == workers && !at::in_parallel_region() && !loaded.isForked();
  }

  bool run(int workers, void (*job)(void* context, int worker), void* context) override {
    struct Region {
      const OpenMp& openMp;
      const int workers;
      void (*const job)(void*, int);
      void* const context;
      std::atomic<bool> ran{false};
    } region{openMp_, workers, job, context};
    const auto body = [](void* data) {
      auto& region = *static_cast<Region*>(data);
      // limits of the environment may make it fewer; all see the same number
      if (region.openMp.threads() != region.workers) return;
      region.job(region.context, region.openMp.threadNumber());
      region.ran.store(true, std::memory_order_relaxed);
    };
    openMp_.parallel(body, &region, static_cast<unsigned>(workers), 0);
    return region.ran.load(std::memory_order_relaxed);
  }

 private:
  const OpenMp openMp_;
};

}  // namespace

Team* frameworkThreads() {
  static FrameworkThreads* const team = [] {
    const auto openMp = findOpenMp();
    return openMp ? new FrameworkThreads(*openMp) : nullptr;
  }();
  return team;
}

}  // namespace sluice
