// oneDNN's products: one matmul primitive per product and number of rows, made once.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tools/bench/peer_products.h"

namespace sluice::tools {
namespace {

using dnnl::memory;

memory::desc matrix(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

// Versions 2 and 3 describe a product differently.
dnnl::matmul::primitive_desc matmulDesc(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                        const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                        const dnnl::primitive_attr& attributes) {
  try {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, a, b, c, attributes};
#else
    return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
  } catch (const dnnl::error& failure) {
    if (failure.status != dnnl_unimplemented || a.data_type() != memory::data_type::bf16) throw;
    throw std::runtime_error("the library multiplies no bf16 on this processor");
  }
}

struct Primitive {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul matmul;
};

class OneDnn final : public PeerProducts {
 public:
  explicit OneDnn(const ProductsSetup& setup)
      : c_(*setup.rows),
        mode_(setup.mode),
        type_(setup.type == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16),
        engine_(dnnl::engine::kind::cpu, 0),
        weights_(static_cast<size_t>(kLayerProducts * c_.experts())),
        scratch_(static_cast<size_t>(setup.threads)) {
    for (int thread = 0; thread < setup.threads; ++thread) streams_.emplace_back(engine_);
  }

  // A primitive is made for the number of threads that will run it, which useThreads() has set.
  void prepare(LayerProduct product, int expert, const std::byte* weight) override {
    const Primitive& primitive = primitiveFor(product, countExpertRows(expert));
    if (weight == nullptr) return;
    const ProductShape s = productShape(product, c_, countExpertRows(expert));
    const memory plain(matrix(s.k, s.n, s.transposedB, type_), engine_, const_cast<std::byte*>(weight));
    Weight& own = expertWeight(product, expert);
    own.plain = own.packed = plain;
    if (primitive.desc.weights_desc() == plain.get_desc()) return;
    own.packed = memory(primitive.desc.weights_desc(), engine_);
    own.pack = dnnl::reorder(own.plain, own.packed);
    dnnl::stream stream(engine_);
    own.pack.execute(stream, own.plain, own.packed);
    stream.wait();
  }

  void multiply(LayerProduct product, int expert, int thread, const std::byte* a, const std::byte* b,
                std::byte* c) override {
    const Primitive& p = primitives_.at({product, countExpertRows(expert)});
    const memory left(p.desc.src_desc(), engine_, const_cast<std::byte*>(a));
    dnnl::stream& stream = streams_[static_cast<size_t>(thread)];
    memory right;
    if (isWeightGrad(product)) {
      right = memory(p.desc.weights_desc(), engine_, const_cast<std::byte*>(b));
    } else {
      Weight& own = expertWeight(product, expert);
      right = own.packed;
      if (mode_.packsInPass && own.pack) own.pack.execute(stream, own.plain, own.packed);
    }
    p.matmul.execute(stream, {{DNNL_ARG_SRC, left},
                              {DNNL_ARG_WEIGHTS, right},
                              {DNNL_ARG_DST, memory(p.desc.dst_desc(), engine_, c)},
                              {DNNL_ARG_SCRATCHPAD, findScratch(thread)}});
  }

  void useThreads(int threads) override { omp_set_num_threads(threads); }
  void endThreads() override {}
  bool threadsAreOpenMp() const override { return true; }

 private:
  struct Weight {
    memory plain, packed;  // the latter in the primitive's layout
    dnnl::reorder pack;    // empty: the layouts are the same
  };
  Weight& expertWeight(LayerProduct product, int expert) {
    return weights_[static_cast<size_t>(expert) * kLayerProducts + static_cast<size_t>(product)];
  }

  int64_t countExpertRows(int expert) const { return c_.rows[static_cast<size_t>(expert)]; }

  Primitive& primitiveFor(LayerProduct product, int64_t rows) {
    const auto key = std::pair{product, rows};
    if (const auto found = primitives_.find(key); found != primitives_.end()) return found->second;
    const ProductShape s = productShape(product, c_, rows);
    const memory::desc b = mode_.packed && !isWeightGrad(product)
                               ? memory::desc({s.k, s.n}, type_, memory::format_tag::any)
                               : matrix(s.k, s.n, s.transposedB, type_);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto desc = matmulDesc(
        engine_, matrix(s.m, s.k, s.transposedA, type_), b,
        matrix(s.m, s.n, false, isWeightGrad(product) ? memory::data_type::f32 : type_), attributes);
    scratchBytes_ = std::max(scratchBytes_, desc.scratchpad_desc().get_size());
    return primitives_.emplace(key, Primitive{desc, dnnl::matmul(desc)}).first->second;
  }

  // The memory is made in the first run, when all products are prepared.
  const memory& findScratch(int thread) {
    memory& own = scratch_[static_cast<size_t>(thread)];
    if (!own)
      own = memory(
          memory::desc({static_cast<int64_t>(scratchBytes_)}, memory::data_type::u8, memory::format_tag::a),
          engine_);
    return own;
  }

  const RowsCase& c_;
  const PeerMode mode_;
  const memory::data_type type_;
  dnnl::engine engine_;
  std::map<std::pair<LayerProduct, int64_t>, Primitive> primitives_;
  std::vector<Weight> weights_;  // by expert and product
  size_t scratchBytes_ = 1;
  std::vector<dnnl::stream> streams_;  // one per thread
  std::vector<memory> scratch_;        // likewise
};

}  // namespace

Expected<std::string> oneDnnVersion() {
  const dnnl_version_t* const version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

Expected<std::unique_ptr<PeerProducts>> makeOneDnnProducts(const ProductsSetup& setup) {
  return std::unique_ptr<PeerProducts>(new OneDnn(setup));
}

}  // namespace sluice::tools
