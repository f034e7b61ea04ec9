// A layer on a library that only multiplies: products by the library, and in between activations, by the
// kernels of Sluice where rows are bf16 (they are faster than a chain of element-wise primitives) and by a
// loop where they are fp32.
#include "tools/bench/peer.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/abi/kernels.h"
#include "tools/bench/peer_products.h"
#include "tools/bench/peer_swiglu.h"

namespace sluice::tools {
namespace {

struct Library {
  PeerKind kind;
  Expected<std::string> (*version)();
  Expected<std::unique_ptr<PeerProducts>> (*make)(const ProductsSetup& setup);
};

constexpr Library kLibraries[] = {
    {{"onednn", DType::kBF16, true}, &oneDnnVersion, &makeOneDnnProducts},
    {{"onednn-f32", DType::kF32, true}, &oneDnnVersion, &makeOneDnnProducts},
    {{"openblas", DType::kF32, false}, &openBlasVersion, &makeOpenBlasProducts},
};

const Library& findLibrary(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kLibraries), std::end(kLibraries),
                                         [&](const Library& each) { return each.kind.name == name; });
  assert(found != std::end(kLibraries));
  return *found;
}

class LayerPeer final : public Peer {
 public:
  LayerPeer(const PeerKind& kind, const PeerInputs& inputs, const PeerMode& mode, PeerResults& results,
            std::unique_ptr<PeerProducts> products)
      : kind_(kind),
        in_(inputs),
        c_(*inputs.rows),
        mode_(mode),
        out_(results),
        products_(std::move(products)),
        kernels_(**ops::kernelsFor(ops::supportedIsas().back())),
        begin_(c_.rows.size()),
        order_(c_.rows.size()) {
    std::exclusive_scan(c_.rows.begin(), c_.rows.end(), begin_.begin(), int64_t{0});
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return countExpertRows(a) > countExpertRows(b); });
  }

  void prepare(bool backward) {
    products_->useThreads(threadsOfProduct());
    for (int expert : order_)
      for (int number = 0; number < (backward ? kLayerProducts : 2); ++number) {
        const auto product = static_cast<LayerProduct>(number);
        if (countExpertRows(expert) > 0) products_->prepare(product, expert, expertWeight(product, expert));
      }
    products_->endThreads();
  }

  Status run(Pass pass) override {
    error_.clear();
    products_->useThreads(threadsOfProduct());
    if (mode_.expertsInParallel) {
#pragma omp parallel for num_threads(in_.threads) schedule(dynamic, 1)
      for (size_t i = 0; i < order_.size(); ++i) guarded(order_[i], omp_get_thread_num(), pass);
    } else {
      for (int expert : order_) guarded(expert, 0, pass);
    }
    if (error_.empty()) return {};
    return Error{fmt::format("{}: {}", kind_.name, error_)};
  }

  void startThreads() override {
    products_->useThreads(threadsOfProduct());
    if (!mode_.expertsInParallel && !products_->threadsAreOpenMp()) return;
#pragma omp parallel num_threads(in_.threads)
    {
    }
  }
  void endThreads() override {
    products_->endThreads();
    omp_pause_resource_all(omp_pause_soft);
  }

 private:
  int threadsOfProduct() const { return mode_.expertsInParallel ? 1 : in_.threads; }
  int64_t countExpertRows(int expert) const { return c_.rows[static_cast<size_t>(expert)]; }

  // Row `row` of a matrix of rows.
  const std::byte* at(const std::byte* rows, int64_t row, int64_t columns) const {
    return rows + row * columns * dtypeBytes(kind_.type);
  }
  std::byte* at(Tensor& rows, int64_t row, int64_t columns) const {
    return rows.data() + row * columns * dtypeBytes(kind_.type);
  }

  // The second operand of a product if it is a weight, else null.
  const std::byte* expertWeight(LayerProduct product, int expert) const {
    if (isWeightGrad(product)) return nullptr;
    return product == LayerProduct::kUp || product == LayerProduct::kGateGrad
               ? at(in_.gateUpWeight, int64_t{expert} * c_.hidden, 2 * c_.inter)
               : at(in_.downWeight, int64_t{expert} * c_.inter, c_.hidden);
  }

  void guarded(int expert, int thread, Pass pass) {
    try {
      pass == Pass::kForward ? forward(expert, thread) : backward(expert, thread);
    } catch (const std::exception& failure) {
      const std::lock_guard lock(mutex_);
      error_ = failure.what();
    }
  }

  // Calls body(first row, rows) for parts of the rows, on as many threads as a product has. OpenMP's threads
  // would spin beside the threads of a library that has its own.
  template <class Body>
  void overRows(int64_t rows, const Body& body) {
    const int parts = threadsOfProduct();
    const auto runPart = [&](int64_t part) {
      const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
      body(begin, end - begin);
    };
    if (products_->threadsAreOpenMp()) {
#pragma omp parallel for num_threads(parts) if (parts > 1)
      for (int part = 0; part < parts; ++part) runPart(part);
      return;
    }
    std::vector<std::jthread> others;
    for (int part = 1; part < parts; ++part) others.emplace_back(runPart, part);
    runPart(0);
  }

  void activate(const std::byte* gateUp, std::byte* act, int64_t rows) const {
    const int64_t inter = c_.inter;
    if (kind_.type == DType::kF32)
      return swiglu(reinterpret_cast<const float*>(gateUp), reinterpret_cast<float*>(act), rows, inter);
    kernels_.activation({reinterpret_cast<const BFloat16*>(gateUp), 2 * inter,
                         reinterpret_cast<BFloat16*>(act), inter, static_cast<int32_t>(rows),
                         static_cast<int32_t>(inter)});
  }

  void activateGrad(const std::byte* actGrad, const std::byte* gateUp, std::byte* gateUpGrad,
                    int64_t rows) const {
    const int64_t inter = c_.inter;
    if (kind_.type == DType::kF32)
      return swigluGrad(reinterpret_cast<const float*>(actGrad), reinterpret_cast<const float*>(gateUp),
                        reinterpret_cast<float*>(gateUpGrad), rows, inter);
    kernels_.activationGrad({reinterpret_cast<const BFloat16*>(actGrad), inter,
                             reinterpret_cast<const BFloat16*>(gateUp), 2 * inter, nullptr,
                             reinterpret_cast<BFloat16*>(gateUpGrad), 2 * inter, nullptr,
                             static_cast<int32_t>(rows), static_cast<int32_t>(inter)});
  }

  void multiply(LayerProduct product, int expert, int thread, const std::byte* a, std::byte* c) {
    products_->multiply(product, expert, thread, a, expertWeight(product, expert), c);
  }

  void forward(int expert, int thread) {
    const int64_t rows = countExpertRows(expert), first = begin_[static_cast<size_t>(expert)];
    if (rows == 0) return;
    const int64_t inter = c_.inter;
    multiply(LayerProduct::kUp, expert, thread, at(in_.x, first, c_.hidden),
             at(out_.gateUp, first, 2 * inter));
    overRows(rows, [&](int64_t begin, int64_t count) {
      activate(at(out_.gateUp, first + begin, 2 * inter), at(out_.act, first + begin, inter), count);
    });
    multiply(LayerProduct::kDown, expert, thread, at(out_.act, first, inter), at(out_.y, first, c_.hidden));
  }

  void backward(int expert, int thread) {
    const int64_t rows = countExpertRows(expert), first = begin_[static_cast<size_t>(expert)];
    const int64_t inter = c_.inter, weight = c_.hidden * inter;
    float* const gateUpWeightGrad = out_.gateUpWeightGrad.as<float>() + expert * 2 * weight;
    float* const downWeightGrad = out_.downWeightGrad.as<float>() + expert * weight;
    if (rows == 0) {
      // the gradient of a weight without rows is zero and must be written
      std::memset(gateUpWeightGrad, 0, static_cast<size_t>(weight) * 2 * sizeof(float));
      std::memset(downWeightGrad, 0, static_cast<size_t>(weight) * sizeof(float));
      return;
    }
    const std::byte* const dy = at(in_.dy, first, c_.hidden);
    const std::byte* const gateUpGrad = at(out_.gateUpGrad, first, 2 * inter);
    multiply(LayerProduct::kActGrad, expert, thread, dy, at(out_.actGrad, first, inter));
    overRows(rows, [&](int64_t begin, int64_t count) {
      const int64_t row = first + begin;
      activateGrad(at(out_.actGrad, row, inter), at(out_.gateUp, row, 2 * inter),
                   at(out_.gateUpGrad, row, 2 * inter), count);
    });
    multiply(LayerProduct::kGateGrad, expert, thread, gateUpGrad, at(out_.dx, first, c_.hidden));
    products_->multiply(LayerProduct::kDownWeightGrad, expert, thread, at(out_.act, first, inter), dy,
                        reinterpret_cast<std::byte*>(downWeightGrad));
    products_->multiply(LayerProduct::kGateUpWeightGrad, expert, thread, at(in_.x, first, c_.hidden),
                        gateUpGrad, reinterpret_cast<std::byte*>(gateUpWeightGrad));
  }

  const PeerKind kind_;
  const PeerInputs in_;
  const RowsCase& c_;
  const PeerMode mode_;
  PeerResults& out_;
  const std::unique_ptr<PeerProducts> products_;
  const ops::KernelSet& kernels_;
  std::vector<int64_t> begin_;  // first row of each expert
  std::vector<int> order_;      // experts, the largest first
  std::mutex mutex_;
  std::string error_;
};

}  // namespace

ProductShape productShape(LayerProduct product, const RowsCase& c, int64_t rows) {
  switch (product) {
    case LayerProduct::kUp:
      return {rows, 2 * c.inter, c.hidden, false, false};
    case LayerProduct::kDown:
      return {rows, c.hidden, c.inter, false, false};
    case LayerProduct::kActGrad:
      return {rows, c.inter, c.hidden, false, true};
    case LayerProduct::kGateGrad:
      return {rows, c.hidden, 2 * c.inter, false, true};
    case LayerProduct::kDownWeightGrad:
      return {c.inter, c.hidden, rows, true, false};
    case LayerProduct::kGateUpWeightGrad:
      return {c.hidden, 2 * c.inter, rows, true, false};
  }
  return {};
}

std::vector<std::string> peerNames() {
  std::vector<std::string> names;
  for (const Library& library : kLibraries) names.emplace_back(library.kind.name);
  return names;
}

const PeerKind& peerKind(std::string_view name) { return findLibrary(name).kind; }

Expected<std::string> peerVersion(std::string_view name) {
  const Library& library = findLibrary(name);
  Expected<std::string> version = library.version();
  if (!version) return Error{fmt::format("--peer {}: {}", name, version.error().message)};
  return library.kind.type == DType::kF32 ? *version + " fp32" : *version;
}

Expected<std::unique_ptr<Peer>> makePeer(std::string_view name, const PeerInputs& inputs,
                                         const PeerMode& mode, bool backward, PeerResults& results) {
  const Library& library = findLibrary(name);
  try {
    auto products = library.make({inputs.rows, library.kind.type, mode, inputs.threads});
    if (!products) return products.error();
    auto peer = std::make_unique<LayerPeer>(library.kind, inputs, mode, results, std::move(*products));
    peer->prepare(backward);
    return std::unique_ptr<Peer>(std::move(peer));
  } catch (const std::exception& failure) {
    return Error{fmt::format("{}: {}", name, failure.what())};
  }
}

}  // namespace sluice::tools
