// Products by the kernels of several libraries in turn, on one thread or several: which of two states of the
// kernels is faster, on a machine whose speed changes, and how near they come to the register peak and to
// reading the weights. compare_kernels.sh builds the libraries of working trees.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/bench/peak.h"
#include "ops/bench/probes.h"
#include "runtime/abi/kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/threads.h"
#include "tools/lab/one_thread.h"

namespace sluice::ops {
namespace {

struct Options {
  std::string layout = "ordinary", isa = "avx512";
  int32_t rows = 256, sum = 2048, columns = 1536, task = 512, repeat = 9, threads = 1, experts = 0;
  std::vector<std::string> libraries;
};

struct Candidate {
  std::string name;
  const ProductKernels* products;
  std::vector<double> times = {};
  uint64_t bits = 0;

  double best() const { return *std::ranges::min_element(times); }
};

template <class T>
T* zeros(std::vector<std::vector<CacheLine>>& memory, size_t count) {
  memory.push_back(probedMemory((count * sizeof(T) / sizeof(CacheLine) + 1) * sizeof(CacheLine)));
  return reinterpret_cast<T*>(memory.back().data());
}

// One product per expert, each by one thread: unless told, of so many experts that their weights or gradients
// do not stay in the caches.
class Products {
 public:
  explicit Products(const Options& options)
      : o_(options),
        experts_(options.experts > 0
                     ? static_cast<size_t>(options.experts)
                     : std::max<size_t>(2 * options.threads, (size_t{96} << 20) / (2 * weight()))),
        scratch_(static_cast<size_t>(options.threads)) {
    a_ = zeros<BFloat16>(memory_, experts_ * o_.rows * o_.sum);
    fillRandomly({a_, experts_ * o_.rows * o_.sum});
    if (!readsWeights()) {
      b_ = zeros<BFloat16>(memory_, experts_ * o_.rows * o_.columns);
      fillRandomly({b_, experts_ * o_.rows * o_.columns});
      resultBytes_ = experts_ * weight() * sizeof(float);
    } else {
      b_ = zeros<BFloat16>(memory_, experts_ * weight());
      fillRandomly({b_, weight()});
      for (size_t e = 1; e < experts_; ++e) std::memcpy(b_ + e * weight(), b_, weight() * sizeof *b_);
      resultBytes_ = experts_ * o_.rows * o_.columns * sizeof(BFloat16);
    }
    result_ = zeros<std::byte>(memory_, resultBytes_);
  }

  bool readsWeights() const { return o_.layout != "gradient"; }
  double operations() const { return 2.0 * experts_ * o_.rows * weight(); }

  // The bits of the result, of a run that nobody times.
  uint64_t hashResult(const ProductKernels& products) {
    std::memset(result_, 0, resultBytes_);
    measureSeconds(products);
    return hashContent(std::span<const std::byte>(result_, resultBytes_));
  }

  double measureSeconds(const ProductKernels& products) {
    if (o_.layout == "packed") packOnce(products);
    return measureSlowest([&](size_t thread, size_t expert) {
      for (int32_t t = 0; t < tasks(); ++t)
        readsWeights() ? multiplyRows(products, thread, expert, t)
                       : multiplyGradient(products, thread, expert, t);
    });
  }

  // Measures only reading each weight, which every product does at least.
  double secondsOfReading() {
    const size_t lines = weight() * sizeof *b_ / sizeof(CacheLine);
    return measureSlowest([&](size_t, size_t expert) {
      readMemory({reinterpret_cast<const CacheLine*>(b_) + expert * lines, lines});
    });
  }

 private:
  size_t weight() const { return static_cast<size_t>(o_.sum) * o_.columns; }
  int32_t tasks() const { return (o_.columns - 1) / o_.task + 1; }
  size_t panelBytes(const ProductKernels& products) const {
    return products.find(kBf16Product)->packedBytes(o_.task, o_.sum, {});
  }
  std::byte* locatePanel(const ProductKernels& products, size_t expert, int32_t task) {
    return packed_.at(&products) + (expert * tasks() + task) * panelBytes(products);
  }

  void packOnce(const ProductKernels& products) {
    std::byte*& packed = packed_[&products];
    if (packed != nullptr) return;
    packed = zeros<std::byte>(memory_, experts_ * tasks() * panelBytes(products));
    for (size_t e = 0; e < experts_; ++e)
      for (int32_t t = 0; t < tasks(); ++t)
        products.packWeight({Operand(b_ + e * weight(), o_.columns).from(0, t * o_.task), countColumns(t),
                             o_.sum, false, locatePanel(products, e, t)});
  }

  int32_t countColumns(int32_t task) const { return std::min(o_.task, o_.columns - task * o_.task); }

  void* scratchFor(size_t thread, size_t bytes) {
    std::vector<CacheLine>& scratch = scratch_[thread];
    if (scratch.size() * sizeof(CacheLine) < bytes)
      scratch = probedMemory((bytes / sizeof(CacheLine) + 1) * sizeof(CacheLine));
    return scratch.data();
  }

  // The work for all experts, which take turns among the threads: the processor time of the slowest thread.
  double measureSlowest(const std::function<void(size_t thread, size_t expert)>& work) {
    const size_t threads = scratch_.size();
    std::vector<double> seconds(threads);
    const Status ran = runTogether(o_.threads, "products", [&](int thread) {
      const auto own = static_cast<size_t>(thread);
      seconds[own] = threadSeconds([&] {
        for (size_t expert = own; expert < experts_; expert += threads) work(own, expert);
      });
    });
    if (!ran) {
      fmt::print(stderr, "compare_kernels: error: {}\n", ran.error().message);
      std::exit(1);
    }
    return std::ranges::max(seconds);
  }

  void multiplyRows(const ProductKernels& products, size_t thread, size_t e, int32_t t) {
    const bool transposed = o_.layout == "transposed";
    const BFloat16* const weights = b_ + e * weight();
    const int32_t first = t * o_.task;
    products.gmm({.a = {a_ + e * o_.rows * o_.sum, o_.sum},
                  .b = transposed ? Operand(weights, o_.sum).from(first, 0)
                                  : Operand(weights, o_.columns).from(0, first),
                  .c = Result(reinterpret_cast<BFloat16*>(result_) + e * o_.rows * o_.columns, o_.columns)
                           .from(0, first),
                  .rows = o_.rows,
                  .n = countColumns(t),
                  .k = o_.sum,
                  .transposeB = transposed,
                  .scratch = scratchFor(thread, products.gmmScratchBytes(o_.columns, o_.sum)),
                  .packedB = o_.layout == "packed" ? locatePanel(products, e, t) : nullptr});
  }

  // All rows of a gradient, `task` columns of it.
  void multiplyGradient(const ProductKernels& products, size_t thread, size_t e, int32_t t) {
    products.gmmWeightGrad(
        {.a = {a_ + e * o_.rows * o_.sum, o_.sum},
         .b = Operand(b_ + e * o_.rows * o_.columns, o_.columns).from(0, t * o_.task),
         .scale = nullptr,
         .c = Result(reinterpret_cast<float*>(result_) + e * weight(), o_.columns).from(0, t * o_.task),
         .rows = o_.rows,
         .m = o_.sum,
         .n = countColumns(t),
         .scratch = scratchFor(thread, products.weightGradScratchBytes(o_.sum, o_.columns))});
  }

  const Options& o_;
  const size_t experts_;
  std::vector<std::vector<CacheLine>> memory_;
  std::vector<std::vector<CacheLine>> scratch_;  // by thread
  BFloat16 *a_ = nullptr, *b_ = nullptr;
  std::byte* result_ = nullptr;
  size_t resultBytes_ = 0;
  std::unordered_map<const ProductKernels*, std::byte*> packed_;
};

// The kernels of a library of ops/BUILD.bazel, by the name of their instruction set there.
const ProductKernels* load(const std::string& path, const std::string& isa) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string symbol = fmt::format("_ZN6sluice3ops{}{}8productsE", isa.size(), isa);
  return library == nullptr ? nullptr : static_cast<const ProductKernels*>(dlsym(library, symbol.c_str()));
}

int compare(const Options& options) {
  const Isa isa = *isaFromName(options.isa);  // CLI11 has checked it
  if (!kernelsFor(isa)) {
    fmt::print(stderr, "compare_kernels: error: {}\n", kernelsFor(isa).error().message);
    return 1;
  }
  std::vector<Candidate> all;
  for (const std::string& path : options.libraries) {
    const ProductKernels* const products = load(path, options.isa);
    if (products == nullptr) {
      fmt::print(stderr, "compare_kernels: error: {}\n", dlerror());
      return 1;
    }
    all.push_back({path.substr(path.rfind('/') + 1), products});
  }
  Products products(options);
  for (Candidate& each : all) each.bits = products.hashResult(*each.products);
  std::vector<double> reading;
  for (int32_t i = 0; i < options.repeat; ++i) {
    if (products.readsWeights()) reading.push_back(products.secondsOfReading());
    for (Candidate& each : all) each.times.push_back(products.measureSeconds(*each.products));
  }
  const double peak = options.threads * findPeak(isa, runPeak);
  bool same = true;
  for (const Candidate& each : all) {
    same &= each.bits == all.front().bits;
    fmt::print("{:<24} best {:8.3f} ms, median {:8.3f}  {:5.1f}% of peak  ", each.name, each.best() * 1e3,
               computeMedian(each.times) * 1e3, 100 * products.operations() / each.best() / peak);
    if (products.readsWeights())
      fmt::print("{:5.1f}% (median {:5.1f}%) of reading  ", 100 * std::ranges::min(reading) / each.best(),
                 100 * computeMedian(reading) / computeMedian(each.times));
    fmt::print("{:.3f} times as fast{}\n", all.front().best() / each.best(),
               each.bits == all.front().bits ? "" : "  OTHER BITS");
  }
  return same ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"compare_kernels: products by the kernels of several libraries in turn"};
  app.add_option("libraries", options.libraries, "shared libraries of kernels")->required();
  app.add_option("--isa", options.isa, "their instruction set, of which the peak is (default: avx512)")
      ->check(CLI::IsMember({"portable", "avx2", "avx512", "amx"}));
  app.add_option("--layout", options.layout, "of the weights, or a gradient in fp32 (default: ordinary)")
      ->check(CLI::IsMember({"ordinary", "transposed", "packed", "gradient"}));
  const auto size = [&app](const char* name, int32_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1, 1 << 16))->capture_default_str();
  };
  size("--rows", options.rows, "rows of an expert");
  size("--sum", options.sum, "elements of a sum; rows of a gradient");
  size("--columns", options.columns, "columns of the result");
  size("--task", options.task, "columns of a task");
  size("--repeat", options.repeat, "measured repetitions, after one that compares bits");
  size("--threads", options.threads, "threads, each with experts of its own");
  app.add_option("--experts", options.experts,
                 "few for weights that stay in the caches (default: 96 MiB of them)")
      ->check(CLI::Range(1, 1 << 16));
  CLI11_PARSE(app, argc, argv);
  return compare(options);
}

}  // namespace
}  // namespace sluice::ops

int main(int argc, char** argv) { return sluice::ops::run(argc, argv); }
