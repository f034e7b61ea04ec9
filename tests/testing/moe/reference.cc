#include "tests/testing/moe/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/abi/activation.h"
#include "tools/moe/matmul.h"

namespace sluice::tools {
namespace {

constexpr int64_t kChunkRows = 1024;  // bounds the memory where all rows go to one expert
constexpr int64_t kRowGrain = 16;

struct Pair {
  int32_t rank;
  int32_t slot;  // 0 .. K-1
  int64_t token;
};

bool hasGradient(std::span<const MoeInputs> ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const MoeInputs& in) { return in.dy != nullptr || in.tokens == 0; });
}

// The pairs of every expert, by rank, then by token.
Expected<std::vector<std::vector<Pair>>> groupByExpert(const MoeDims& dims,
                                                       std::span<const MoeInputs> ranks) {
  std::vector<std::vector<Pair>> groups(static_cast<size_t>(dims.experts));
  for (int r = 0; r < dims.ranks; ++r)
    for (int64_t t = 0; t < ranks[r].tokens; ++t)
      for (int k = 0; k < dims.topK; ++k) {
        const int32_t* row = ranks[r].expertIds + t * dims.topK;
        if (row[k] == -1) continue;
        if (row[k] < 0 || row[k] >= dims.experts)
          return Error{fmt::format("rank {}, token {}: found expert id {}, expected -1 to {}", r, t, row[k],
                                   dims.experts - 1)};
        if (std::find(row, row + k, row[k]) != row + k)
          return Error{fmt::format("rank {}, token {}: expert id {} is repeated", r, t, row[k])};
        groups[static_cast<size_t>(row[k])].push_back({r, k, t});
      }
  return groups;
}

// One expert after the other; buffers are kept between them.
class Layer {
 public:
  Layer(const MoeDims& dims, std::span<const MoeInputs> ranks, int threads)
      : d_(dims), in_(ranks), threads_(threads), results_(ranks.size()) {
    backward_ = hasGradient(ranks);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto tokens = static_cast<size_t>(ranks[r].tokens);
      results_[r].y.resize(tokens * static_cast<size_t>(d_.hidden));
      if (!backward_) continue;
      results_[r].dx.resize(results_[r].y.size());
      results_[r].dExpertWeights.resize(tokens * static_cast<size_t>(d_.topK));
    }
    if (!backward_) return;
    gateUpGrad_.resize(static_cast<size_t>(d_.hidden * d_.up()));
    downGrad_.resize(static_cast<size_t>(d_.inter * d_.hidden));
  }

  void expert(int e, std::span<const Pair> pairs) {
    const int rank = d_.deal().owner(e);
    const MoeInputs& owner = in_[static_cast<size_t>(rank)];
    const int64_t local = e - d_.deal().first(rank);
    const auto widen = [local](const BFloat16* all, int64_t count, std::vector<double>& out) {
      out.resize(static_cast<size_t>(count));
      std::transform(all + local * count, all + (local + 1) * count, out.begin(),
                     [](BFloat16 v) { return toFloat(v); });
    };
    widen(owner.gateUpWeight, d_.hidden * d_.up(), gateUpWeight_);
    widen(owner.downWeight, d_.inter * d_.hidden, downWeight_);
    std::fill(gateUpGrad_.begin(), gateUpGrad_.end(), 0.0);
    std::fill(downGrad_.begin(), downGrad_.end(), 0.0);
    for (size_t first = 0; first < pairs.size(); first += kChunkRows) {
      pairs_ = pairs.subspan(first, std::min<size_t>(kChunkRows, pairs.size() - first));
      forwardChunk();
      if (backward_) backwardChunk();
    }
  }

  bool backward() const { return backward_; }
  std::span<const double> gateUpGrad() const { return gateUpGrad_; }
  std::span<const double> downGrad() const { return downGrad_; }
  std::vector<MoeTokenResults> takeResults() { return std::move(results_); }

 private:
  int64_t rows() const { return static_cast<int64_t>(pairs_.size()); }

  static MatrixView view(const std::vector<double>& matrix, int64_t columns) {
    return {matrix.data(), columns, 1};
  }

  double weight(const Pair& p) const {
    return in_[static_cast<size_t>(p.rank)].expertWeights[p.token * d_.topK + p.slot];
  }

  // c[rows, n] = a[rows, k] * b.
  void rowsTimes(const std::vector<double>& a, int64_t k, const MatrixView& b, int64_t n,
                 std::vector<double>& c) {
    c.resize(static_cast<size_t>(rows() * n));
    matmul({view(a, k), b, c.data(), n, rows(), n, k, false}, threads_);
  }

  // c[m, n] += a' * b, summed over the rows.
  void addOuter(const std::vector<double>& a, int64_t m, const std::vector<double>& b, int64_t n,
                std::vector<double>& c) {
    matmul({view(a, m).transposed(), view(b, n), c.data(), n, m, n, rows(), true}, threads_);
  }

  void forRows(const std::function<void(int64_t)>& body) {
    parallelFor(threads_, rows(), kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row);
    });
  }

  void gather(const BFloat16* MoeInputs::* tensor, std::vector<double>& out) {
    const int64_t h = d_.hidden;
    out.resize(static_cast<size_t>(rows() * h));
    forRows([&](int64_t row) {
      const Pair& p = pairs_[static_cast<size_t>(row)];
      const BFloat16* from = in_[static_cast<size_t>(p.rank)].*tensor + p.token * h;
      std::transform(from, from + h, out.begin() + row * h, [](BFloat16 v) { return toFloat(v); });
    });
  }

  // Experts of one token are distinct: no two rows of a chunk are added to the same token.
  void scatter(const std::vector<double>& from, std::vector<double> MoeTokenResults::* tensor,
               bool weighted) {
    const int64_t h = d_.hidden;
    forRows([&](int64_t row) {
      const Pair& p = pairs_[static_cast<size_t>(row)];
      const double w = weighted ? weight(p) : 1.0;
      double* to = (results_[static_cast<size_t>(p.rank)].*tensor).data() + p.token * h;
      for (int64_t c = 0; c < h; ++c) to[c] += w * from[static_cast<size_t>(row * h + c)];
    });
  }

  ops::ActivationPoint element(int64_t row, int64_t i) const {
    const double* line = gateUp_.data() + row * d_.up();
    return ops::activationAt(d_.activation, d_.limit, line[i],
                             line[ops::findUpColumn(d_.activation, 0, static_cast<int32_t>(d_.inter)) + i]);
  }

  void forwardChunk() {
    const int64_t h = d_.hidden, inter = d_.inter;
    gather(&MoeInputs::x, x_);
    rowsTimes(x_, h, view(gateUpWeight_, d_.up()), d_.up(), gateUp_);
    act_.resize(static_cast<size_t>(rows() * inter));
    forRows([&](int64_t row) {
      for (int64_t i = 0; i < inter; ++i) act_[static_cast<size_t>(row * inter + i)] = element(row, i).act();
    });
    rowsTimes(act_, inter, view(downWeight_, h), h, down_);
    scatter(down_, &MoeTokenResults::y, true);
  }

  void backwardChunk() {
    const int64_t h = d_.hidden, inter = d_.inter;
    gather(&MoeInputs::dy, dy_);
    rowsTimes(dy_, h, view(downWeight_, h).transposed(), inter, actGrad_);
    gateUpRowGrad_.resize(static_cast<size_t>(rows() * d_.up()));
    forRows([&](int64_t row) { activationGrad(row); });
    // From here on act is weighted: the gradient of down_weight is all that still needs it.
    rowsTimes(gateUpRowGrad_, d_.up(), view(gateUpWeight_, d_.up()).transposed(), h, down_);
    scatter(down_, &MoeTokenResults::dx, false);
    addOuter(act_, inter, dy_, h, downGrad_);
    addOuter(x_, h, gateUpRowGrad_, d_.up(), gateUpGrad_);
  }

  void activationGrad(int64_t row) {
    const Pair& p = pairs_[static_cast<size_t>(row)];
    const double w = weight(p);
    double* act = act_.data() + row * d_.inter;
    double* grad = gateUpRowGrad_.data() + row * d_.up();
    double sum = 0;
    for (int64_t i = 0; i < d_.inter; ++i) {
      const ops::ActivationPoint point = element(row, i);
      const double da = actGrad_[static_cast<size_t>(row * d_.inter + i)];
      sum += da * act[i];
      act[i] *= w;
      grad[i] = w * da * point.gateSlope();
      if (findInfo(d_.activation).isGated()) grad[d_.inter + i] = w * da * point.upSlope();
    }
    results_[static_cast<size_t>(p.rank)].dExpertWeights[static_cast<size_t>(p.token * d_.topK + p.slot)] =
        sum;
  }

  const MoeDims& d_;
  std::span<const MoeInputs> in_;
  int threads_;
  bool backward_ = false;
  std::vector<MoeTokenResults> results_;
  // of the expert
  std::vector<double> gateUpWeight_, downWeight_;
  std::vector<double> gateUpGrad_, downGrad_;
  // of the chunk
  std::span<const Pair> pairs_;
  std::vector<double> x_, gateUp_, act_, down_, dy_, actGrad_, gateUpRowGrad_;
};

// Sums of squares of one output.
struct Squares {
  double difference = 0, reference = 0;

  template <class T>
  void add(const T* found, std::span<const double> reference, int threads) {
    constexpr int64_t kGrain = 1 << 16;
    const auto count = static_cast<int64_t>(reference.size());
    std::vector<Squares> parts(static_cast<size_t>((count + kGrain - 1) / kGrain));
    parallelFor(threads, count, kGrain, [&](int64_t begin, int64_t end) {
      Squares part;
      for (int64_t i = begin; i < end; ++i) part.addOne(value(found[i]), reference[static_cast<size_t>(i)]);
      parts[static_cast<size_t>(begin / kGrain)] = part;
    });
    for (const Squares& part : parts) {
      difference += part.difference;
      this->reference += part.reference;
    }
  }
  void addOne(double found, double expected) {
    difference += (found - expected) * (found - expected);
    reference += expected * expected;
  }
  static double value(float v) { return v; }
  static double value(BFloat16 v) { return toFloat(v); }

  double relative() const {
    if (difference == 0 && reference == 0) return 0;
    return std::sqrt(difference / reference);
  }
};

}  // namespace

Expected<std::vector<MoeTokenResults>> moeReference(const MoeDims& dims, std::span<const MoeInputs> ranks,
                                                    const ExpertGradients& gradients, int threads) {
  Expected<std::vector<std::vector<Pair>>> groups = groupByExpert(dims, ranks);
  if (!groups) return groups.error();
  Layer layer(dims, ranks, threads);
  for (int e = 0; e < dims.experts; ++e) {
    layer.expert(e, (*groups)[static_cast<size_t>(e)]);
    if (layer.backward() && gradients) gradients(e, layer.gateUpGrad(), layer.downGrad());
  }
  return layer.takeResults();
}

Expected<std::vector<OutputError>> moeErrors(const MoeDims& dims, std::span<const MoeInputs> inputs,
                                             std::span<const MoeOutputs> outputs, int threads) {
  const auto everywhere = [&](auto member) {
    return std::all_of(outputs.begin(), outputs.end(),
                       [&](const MoeOutputs& o) { return o.*member != nullptr; });
  };
  const bool backward = hasGradient(inputs);
  const bool withGateUp = backward && everywhere(&MoeOutputs::gateUpWeightGrad);
  const bool withDown = backward && everywhere(&MoeOutputs::downWeightGrad);
  Squares y, dx, dWeights, gateUp, down;
  const auto compareExpert = [&](int e, std::span<const double> gateUpGrad,
                                 std::span<const double> downGrad) {
    const int rank = dims.deal().owner(e);
    const MoeOutputs& owner = outputs[static_cast<size_t>(rank)];
    const int64_t local = e - dims.deal().first(rank);
    const auto offset = [&](std::span<const double> grad) {
      return local * static_cast<int64_t>(grad.size());
    };
    if (withGateUp) gateUp.add(owner.gateUpWeightGrad + offset(gateUpGrad), gateUpGrad, threads);
    if (withDown) down.add(owner.downWeightGrad + offset(downGrad), downGrad, threads);
  };
  Expected<std::vector<MoeTokenResults>> reference = moeReference(dims, inputs, compareExpert, threads);
  if (!reference) return reference.error();
  std::vector<OutputError> errors;
  const auto compareTokens = [&](std::string_view name, auto found, auto expected, Squares& squares) {
    if (!everywhere(found)) return;
    for (size_t r = 0; r < outputs.size(); ++r)
      squares.add(outputs[r].*found, (*reference)[r].*expected, threads);
    errors.push_back({name, squares.relative()});
  };
  compareTokens("y", &MoeOutputs::y, &MoeTokenResults::y, y);
  if (!backward) return errors;
  compareTokens("dx", &MoeOutputs::dx, &MoeTokenResults::dx, dx);
  compareTokens("d_expert_weights", &MoeOutputs::dExpertWeights, &MoeTokenResults::dExpertWeights, dWeights);
  if (withGateUp) errors.push_back({"gate_up_weight_grad", gateUp.relative()});
  if (withDown) errors.push_back({"down_weight_grad", down.relative()});
  return errors;
}

}  // namespace sluice::tools
