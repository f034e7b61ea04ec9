// oneDNN as a peer: one matmul primitive per product and number of rows, made once; SwiGLU by the kernels of
// Sluice, which are faster than a chain of oneDNN's element-wise primitives over halves of rows.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "ops/abi/kernels.h"
#include "tools/bench/peer.h"

namespace sluice::tools {
namespace {

using dnnl::memory;

enum class Product : uint8_t { kUp, kDown, kActGrad, kGateGrad, kDownWeightGrad, kGateUpWeightGrad };
constexpr int kProducts = 6;

struct Shape {
  int64_t m, n, k;
  bool transposedA, transposedB;
};

Shape shapeOf(Product product, const RowsCase& c, int64_t rows) {
  switch (product) {
    case Product::kUp:
      return {rows, 2 * c.inter, c.hidden, false, false};
    case Product::kDown:
      return {rows, c.hidden, c.inter, false, false};
    case Product::kActGrad:
      return {rows, c.inter, c.hidden, false, true};
    case Product::kGateGrad:
      return {rows, c.hidden, 2 * c.inter, false, true};
    case Product::kDownWeightGrad:
      return {c.inter, c.hidden, rows, true, false};
    case Product::kGateUpWeightGrad:
      return {c.hidden, 2 * c.inter, rows, true, false};
  }
  return {};
}

bool isWeightGrad(Product product) { return product >= Product::kDownWeightGrad; }

memory::desc matrix(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

// Versions 2 and 3 describe a product differently.
dnnl::matmul::primitive_desc matmulDesc(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                        const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                        const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

struct Primitive {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul matmul;
};

class OneDnn : public Peer {
 public:
  OneDnn(const PeerInputs& inputs, const PeerMode& mode, bool backward, PeerResults& results)
      : in_(inputs),
        c_(*inputs.rows),
        mode_(mode),
        out_(results),
        engine_(dnnl::engine::kind::cpu, 0),
        kernels_(**ops::kernelsFor(ops::supportedIsas().back())) {
    // a primitive is made for the number of threads that will run it
    omp_set_num_threads(mode.expertsInParallel ? 1 : in_.threads);
    const auto experts = static_cast<size_t>(c_.experts());
    begin_.resize(experts);
    std::exclusive_scan(c_.rows.begin(), c_.rows.end(), begin_.begin(), int64_t{0});
    order_.resize(experts);
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return rowsOf(a) > rowsOf(b); });
    weights_.resize(kProducts * experts);
    for (int expert : order_)
      for (int product = 0; product < (backward ? kProducts : 2); ++product)
        if (rowsOf(expert) > 0) prepare(static_cast<Product>(product), expert);
    const size_t threads = static_cast<size_t>(in_.threads);
    for (size_t t = 0; t < threads; ++t) {
      streams_.emplace_back(engine_);
      scratch_.emplace_back(
          memory::desc({static_cast<int64_t>(scratchBytes_)}, memory::data_type::u8, memory::format_tag::a),
          engine_);
    }
  }

  Status run(Pass pass) override {
    error_.clear();
    if (mode_.expertsInParallel) {
#pragma omp parallel for num_threads(in_.threads) schedule(dynamic, 1)
      for (size_t i = 0; i < order_.size(); ++i) guarded(order_[i], omp_get_thread_num(), pass);
    } else {
      omp_set_num_threads(in_.threads);
      for (int expert : order_) guarded(expert, 0, pass);
    }
    if (error_.empty()) return {};
    return Error{"onednn: " + error_};
  }

  void startThreads() override {
#pragma omp parallel num_threads(in_.threads)
    {
    }
  }
  void endThreads() override { omp_pause_resource_all(omp_pause_soft); }

 private:
  struct Weight {
    memory plain, packed;  // the latter in the primitive's layout
    dnnl::reorder pack;    // empty: the layouts are the same
  };
  Weight& weightOf(Product product, int expert) {
    return weights_[static_cast<size_t>(expert) * kProducts + static_cast<size_t>(product)];
  }

  int64_t rowsOf(int expert) const { return c_.rows[static_cast<size_t>(expert)]; }

  Primitive& primitiveFor(Product product, int64_t rows) {
    const auto key = std::pair{product, rows};
    if (const auto found = primitives_.find(key); found != primitives_.end()) return found->second;
    const Shape s = shapeOf(product, c_, rows);
    const auto bf16 = memory::data_type::bf16;
    const memory::desc b = mode_.packed && !isWeightGrad(product)
                               ? memory::desc({s.k, s.n}, bf16, memory::format_tag::any)
                               : matrix(s.k, s.n, s.transposedB, bf16);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto desc = matmulDesc(
        engine_, matrix(s.m, s.k, s.transposedA, bf16), b,
        matrix(s.m, s.n, false, isWeightGrad(product) ? memory::data_type::f32 : bf16), attributes);
    scratchBytes_ = std::max(scratchBytes_, desc.scratchpad_desc().get_size());
    return primitives_.emplace(key, Primitive{desc, dnnl::matmul(desc)}).first->second;
  }

  void prepare(Product product, int expert) {
    const Primitive& primitive = primitiveFor(product, rowsOf(expert));
    if (isWeightGrad(product)) return;
    const Shape s = shapeOf(product, c_, rowsOf(expert));
    const bool up = product == Product::kUp || product == Product::kGateGrad;
    const BFloat16* const weight = up ? in_.gateUpWeight + int64_t{expert} * c_.hidden * 2 * c_.inter
                                      : in_.downWeight + int64_t{expert} * c_.hidden * c_.inter;
    const memory plain(matrix(s.k, s.n, s.transposedB, memory::data_type::bf16), engine_,
                       const_cast<BFloat16*>(weight));
    Weight& own = weightOf(product, expert);
    own.plain = own.packed = plain;
    if (primitive.desc.weights_desc() == plain.get_desc()) return;
    own.packed = memory(primitive.desc.weights_desc(), engine_);
    own.pack = dnnl::reorder(own.plain, own.packed);
    dnnl::stream stream(engine_);
    own.pack.execute(stream, own.plain, own.packed);
    stream.wait();
  }

  void guarded(int expert, int thread, Pass pass) {
    try {
      pass == Pass::kForward ? forward(expert, thread) : backward(expert, thread);
    } catch (const std::exception& failure) {
      const std::lock_guard lock(mutex_);
      error_ = failure.what();
    }
  }

  void multiply(Product product, int expert, int thread, const void* a, const void* b, void* c) {
    const Primitive& p = primitives_.at({product, rowsOf(expert)});
    const memory left(p.desc.src_desc(), engine_, const_cast<void*>(a));
    dnnl::stream& stream = streams_[static_cast<size_t>(thread)];
    memory right;
    if (b != nullptr) {
      right = memory(p.desc.weights_desc(), engine_, const_cast<void*>(b));
    } else {
      Weight& own = weightOf(product, expert);
      right = own.packed;
      if (mode_.packsInPass && own.pack) own.pack.execute(stream, own.plain, own.packed);
    }
    p.matmul.execute(stream, {{DNNL_ARG_SRC, left},
                              {DNNL_ARG_WEIGHTS, right},
                              {DNNL_ARG_DST, memory(p.desc.dst_desc(), engine_, c)},
                              {DNNL_ARG_SCRATCHPAD, scratch_[static_cast<size_t>(thread)]}});
  }

  // Calls body(first row, rows) for parts of the rows, on all threads of a product.
  template <class Body>
  void overRows(int64_t rows, const Body& body) {
    const int64_t parts = mode_.expertsInParallel ? 1 : in_.threads;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
      body(begin, static_cast<int32_t>(end - begin));
    }
  }

  void forward(int expert, int thread) {
    const int64_t rows = rowsOf(expert), at = begin_[static_cast<size_t>(expert)];
    if (rows == 0) return;
    const int64_t inter = c_.inter;
    BFloat16* const gateUp = out_.gateUp.data() + at * 2 * inter;
    BFloat16* const act = out_.act.data() + at * inter;
    multiply(Product::kUp, expert, thread, in_.x + at * c_.hidden, nullptr, gateUp);
    overRows(rows, [&](int64_t begin, int32_t count) {
      kernels_.activation({gateUp + begin * 2 * inter, 2 * inter, act + begin * inter, inter, count,
                           static_cast<int32_t>(inter)});
    });
    multiply(Product::kDown, expert, thread, act, nullptr, out_.y.data() + at * c_.hidden);
  }

  void backward(int expert, int thread) {
    const int64_t rows = rowsOf(expert), at = begin_[static_cast<size_t>(expert)];
    const int64_t inter = c_.inter, weight = c_.hidden * inter;
    float* const gateUpWeightGrad = out_.gateUpWeightGrad.data() + expert * 2 * weight;
    float* const downWeightGrad = out_.downWeightGrad.data() + expert * weight;
    if (rows == 0) {
      // the gradient of a weight without rows is zero and must be written
      std::memset(gateUpWeightGrad, 0, static_cast<size_t>(weight) * 2 * sizeof(float));
      std::memset(downWeightGrad, 0, static_cast<size_t>(weight) * sizeof(float));
      return;
    }
    const BFloat16* const dy = in_.dy + at * c_.hidden;
    const BFloat16* const gateUp = out_.gateUp.data() + at * 2 * inter;
    BFloat16* const actGrad = out_.actGrad.data() + at * inter;
    BFloat16* const gateUpGrad = out_.gateUpGrad.data() + at * 2 * inter;
    const auto columns = static_cast<int32_t>(inter);
    multiply(Product::kActGrad, expert, thread, dy, nullptr, actGrad);
    overRows(rows, [&](int64_t begin, int32_t count) {
      kernels_.activationGrad({actGrad + begin * inter, inter, gateUp + begin * 2 * inter, 2 * inter, nullptr,
                               gateUpGrad + begin * 2 * inter, 2 * inter, nullptr, count, columns});
    });
    multiply(Product::kGateGrad, expert, thread, gateUpGrad, nullptr, out_.dx.data() + at * c_.hidden);
    multiply(Product::kDownWeightGrad, expert, thread, out_.act.data() + at * inter, dy, downWeightGrad);
    multiply(Product::kGateUpWeightGrad, expert, thread, in_.x + at * c_.hidden, gateUpGrad,
             gateUpWeightGrad);
  }

  const PeerInputs in_;
  const RowsCase& c_;
  const PeerMode mode_;
  PeerResults& out_;
  dnnl::engine engine_;
  const ops::KernelSet& kernels_;
  std::vector<int64_t> begin_;  // first row of each expert
  std::vector<int> order_;      // experts, the largest first
  std::map<std::pair<Product, int64_t>, Primitive> primitives_;
  std::vector<Weight> weights_;  // by expert and product
  size_t scratchBytes_ = 1;
  std::vector<dnnl::stream> streams_;  // one per thread
  std::vector<memory> scratch_;
  std::mutex mutex_;
  std::string error_;
};

}  // namespace

std::string peerVersion() {
  const dnnl_version_t* const version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

Expected<std::unique_ptr<Peer>> makePeer(const PeerInputs& inputs, const PeerMode& mode, bool backward,
                                         PeerResults& results) {
  try {
    return std::unique_ptr<Peer>(new OneDnn(inputs, mode, backward, results));
  } catch (const std::exception& failure) {
    return Error{fmt::format("onednn: {}", failure.what())};
  }
}

}  // namespace sluice::tools
