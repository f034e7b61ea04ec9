#include "tests/gpu/gated_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "ops/reference/reference.h"

namespace sluice::gpu {
namespace {

// Indices of matrices.
enum : uint16_t { kRows, kUp, kGateUp, kAct, kGrad, kDown, kGateUpGrad, kWeightedAct };

void fill(HostMatrix& matrix, std::mt19937& random) {
  std::uniform_int_distribution<int> values(-16, 16);
  for (int o = 0; o < matrix.outers; ++o)
    for (int r = 0; r < matrix.rows; ++r)
      for (int c = 0; c < matrix.columns; ++c)
        matrix.at(o, r, c) = toBf16(static_cast<float>(values(random)) / 16);
}

int rowsOf(Major major, int k, int columns) { return major == Major::kMn ? k : columns; }

// alpha * a * weight[e] + bias[e] of each row's expert, rounded to bf16; no gaps. `bias` may be empty.
std::vector<BFloat16> makeGroupedProduct(const HostMatrix& a, const HostMatrix& weight, Major major,
                                         int columns, const int (&rowsOfExpert)[2], float alpha,
                                         const std::vector<uint16_t>& bias) {
  const auto at = [](const HostMatrix& matrix, int row) {
    return reinterpret_cast<const BFloat16*>(matrix.data()) + int64_t{row} * int64_t{matrix.pitch()};
  };
  std::vector<BFloat16> result;
  for (int expert = 0, row = 0; expert < 2; row += rowsOfExpert[expert++]) {
    ops::GmmArgs args{};
    args.a = {at(a, row), a.pitch()};
    args.b = {at(weight, expert * weight.rows), weight.pitch()};
    args.rows = rowsOfExpert[expert];
    args.n = columns;
    args.k = a.columns;
    args.transposeB = major == Major::kK;
    args.alpha = alpha;
    if (!bias.empty())
      args.bias = reinterpret_cast<const BFloat16*>(&bias[static_cast<size_t>(expert * columns)]);
    std::vector<double> sums(static_cast<size_t>(args.rows) * static_cast<size_t>(columns));
    ops::gmmReference(args, sums.data());
    for (const double sum : sums) result.push_back(toBFloat16(static_cast<float>(sum)));
  }
  return result;
}

constexpr double kRounding = 0x1p-8;  // to bf16
constexpr double kFloats = 0x1p-22;   // of a few operations in fp32

std::string firstDifference(const HostMatrix& found, const ExpectedMatrix& expected) {
  for (int r = 0; r < found.rows; ++r)
    for (int c = 0; c < found.columns; ++c) {
      const size_t i = static_cast<size_t>(r) * static_cast<size_t>(found.columns) + static_cast<size_t>(c);
      const double value = found.value(0, r, c), want = expected.values[i];
      if (!(std::abs(value - want) <= std::abs(want) * expected.relative + expected.margins[i]))
        return fmt::format("{}[{}, {}] is {}, expected {}", expected.name, r, c, value, want);
    }
  return found.hasKeptGaps() ? "" : fmt::format("something was written outside of {}", expected.name);
}

}  // namespace

GatedCase::Sizes GatedCase::sizesOf(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  Sizes sizes{};
  for (int& rows : sizes.rows) rows = between(1, 200);
  const bool isShort = between(0, 2) == 0;
  sizes.k = between(8, isShort ? 64 : 150);
  sizes.inter = isShort ? between(1, 40) : between(40, 200);
  if (between(0, 1) == 0) sizes.inter = (sizes.inter + 7) / 8 * 8;
  sizes.gradK = between(8, isShort ? 64 : 150);
  sizes.columns = between(0, 2) == 0 ? 256 : 128;
  sizes.step = between(0, 2) == 0 ? between(16, sizes.columns) : sizes.columns;
  sizes.up = between(0, 1) == 0 ? Major::kK : Major::kMn;
  sizes.down = between(0, 1) == 0 ? Major::kK : Major::kMn;
  sizes.activation = static_cast<ActivationKind>(between(0, static_cast<int>(ActivationKind::MAX)));
  if (findInfo(sizes.activation).hasLimit) sizes.limit = 1.5F;
  sizes.alpha = between(0, 1) == 0 ? 1 : 0.5F;
  sizes.hasBias = between(0, 1) == 0;
  sizes.hasRowWeights = between(0, 1) == 0;
  sizes.storesGateUp = between(0, 3) != 0;
  sizes.storesWeightedAct = between(0, 1) == 0;
  for (RowGaps& gaps : sizes.gaps) gaps = drawGaps(random);
  return sizes;
}

GatedCase::GatedCase(uint64_t seed) : GatedCase(seed, sizesOf(seed)) {}

GatedCase::GatedCase(uint64_t seed, const Sizes& s)
    : sizes_(s),
      rows_(1, s.rows[0] + s.rows[1], s.k, s.gaps[kRows]),
      up_(2, rowsOf(s.up, s.k, gateUpColumns()), rowsOf(s.up, gateUpColumns(), s.k), s.gaps[kUp]),
      gateUp_(1, rows_.rows, gateUpColumns(), s.gaps[kGateUp]),
      act_(1, rows_.rows, s.inter, s.gaps[kAct]),
      grad_(1, rows_.rows, s.gradK, s.gaps[kGrad]),
      down_(2, rowsOf(s.down, s.gradK, s.inter), rowsOf(s.down, s.inter, s.gradK), s.gaps[kDown]),
      gateUpGrad_(1, rows_.rows, gateUpColumns(), s.gaps[kGateUpGrad]),
      weightedAct_(1, rows_.rows, s.inter, s.gaps[kWeightedAct]),
      rowWeightGrad_(static_cast<size_t>(rows_.rows)) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&rows_, &up_, &grad_, &down_}) fill(*matrix, random);
  std::uniform_int_distribution<int> values(-16, 16);
  for (int i = 0; i < 2 * gateUpColumns() && s.hasBias; ++i)
    bias_.push_back(toBf16(static_cast<float>(values(random)) / 16));
  for (int row = 0; row < rows_.rows; ++row) rowWeight_.push_back(static_cast<float>(values(random)) / 10);
  const auto weightRows = [&s](Major major) { return major == Major::kMn ? 64 : s.columns / 2; };
  matrices_ = {rows_.operand(128),      up_.operand(weightRows(s.up)),
               gateUp_.operand(64),     act_.operand(64),
               grad_.operand(128),      down_.operand(weightRows(s.down)),
               gateUpGrad_.operand(64), weightedAct_.operand(64)};
  addTasks(seed);
}

void GatedCase::addTasks(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 2);
  const uint16_t gateUp = sizes_.storesGateUp ? uint16_t{kGateUp} : kNoMatrix;
  const uint16_t weighted = sizes_.storesWeightedAct ? uint16_t{kWeightedAct} : kNoMatrix;
  uint32_t event = kStart + 1;
  int row = 0;
  for (int expert = 0; expert < 2; ++expert)
    for (int left = sizes_.rows[expert]; left > 0; ++event) {
      const int rows = std::min(left, kSlotRows);
      const int step = sizes_.step / findInfo(sizes_.activation).inputs;  // of act
      uint32_t tiles = 0;
      for (int column = 0; column < sizes_.inter; column += step, ++tiles) {
        Product up{kRows,
                   kUp,
                   kAct,
                   sizes_.up,
                   row,
                   rows,
                   expert,
                   column,
                   std::min(column + step, sizes_.inter),
                   sizes_.k,
                   ProductKind::kActivation,
                   gateUp};
        up.alpha = sizes_.alpha;
        if (sizes_.hasBias) up.bias = &bias_[static_cast<size_t>(expert * gateUpColumns())];
        up.activation = sizes_.activation;
        up.limit = sizes_.limit;
        tasks_.add(1, up, {{{0, 0}, {kStart, kStarted}}, event, 1}, random);
      }
      for (int column = 0; column < sizes_.inter && sizes_.storesGateUp; column += sizes_.step) {
        Product grad{kGrad,
                     kDown,
                     kGateUpGrad,
                     sizes_.down,
                     row,
                     rows,
                     expert,
                     column,
                     std::min(column + sizes_.step, sizes_.inter),
                     sizes_.gradK,
                     ProductKind::kActivationGrad,
                     gateUp,
                     weighted};
        grad.alpha = sizes_.alpha;
        grad.activation = sizes_.activation;
        grad.limit = sizes_.limit;
        if (sizes_.hasRowWeights) {
          grad.rowWeight = rowWeight_.data();
          grad.rowWeightGrad = rowWeightGrad_.data();
          grad.addsRowWeightGrad = column > 0;
        }
        const TaskEvents events = {{{event, tiles}, {kStart, kStarted}}, 0, 0};
        if (column == 0)
          tasks_.add(0, grad, events, random);
        else
          tasks_.addNext(grad, events);
      }
      row += rows;
      left -= rows;
    }
  tasks_.shuffle(event, random);
}

std::string GatedCase::run(GpuBackend& backend, double timeoutSeconds) {
  for (HostMatrix* out : {&gateUp_, &act_, &gateUpGrad_, &weightedAct_}) out->clear();
  std::ranges::fill(rowWeightGrad_, std::numeric_limits<float>::quiet_NaN());
  std::vector<HostRange> memory = {rangeOf(rowWeight_), rangeOf(rowWeightGrad_), rangeOf(bias_)};
  for (const HostMatrix* matrix :
       {&rows_, &up_, &gateUp_, &act_, &grad_, &down_, &gateUpGrad_, &weightedAct_})
    memory.push_back(matrix->memory());
  const std::string wrong = tasks_.run(backend, matrices_, std::move(memory), timeoutSeconds);
  return wrong.empty() ? firstWrongValue() : wrong;
}

std::vector<uint16_t> GatedCase::results() const {
  std::vector<uint16_t> all;
  for (const HostMatrix* out : {&gateUp_, &act_, &gateUpGrad_, &weightedAct_})
    all.insert(all.end(), out->elements().begin(), out->elements().end());
  const auto* const grads = reinterpret_cast<const uint16_t*>(rowWeightGrad_.data());
  all.insert(all.end(), grads, grads + 2 * rowWeightGrad_.size());
  return all;
}

std::string GatedCase::firstWrongValue() const {
  const int rows = rows_.rows, inter = sizes_.inter, both = gateUpColumns();
  const auto gateUp = makeGroupedProduct(rows_, up_, sizes_.up, both, sizes_.rows, sizes_.alpha, bias_);
  const auto actGrad = makeGroupedProduct(grad_, down_, sizes_.down, inter, sizes_.rows, sizes_.alpha, {});
  const auto sizeOf = [rows](int columns) {
    return static_cast<size_t>(rows) * static_cast<size_t>(columns);
  };
  ExpectedMatrix kept{"gate_up", 0, {}, std::vector<double>(sizeOf(both))};
  for (const BFloat16 value : gateUp) kept.values.push_back(toFloat(value));
  ExpectedMatrix act{"act", kRounding, std::vector<double>(sizeOf(inter)), {}};
  ops::ActivationArgs args{};
  args.gateUp = gateUp.data();
  args.ldGateUp = both;
  args.rows = rows;
  args.inter = inter;
  args.kind = sizes_.activation;
  args.limit = sizes_.limit;
  ops::activationReference(args, act.values.data());

  ExpectedMatrix grad{"gate_up_grad", kRounding, std::vector<double>(sizeOf(both)), {}};
  ops::ActivationGradArgs gradArgs{};
  gradArgs.actGrad = actGrad.data();
  gradArgs.ldActGrad = inter;
  gradArgs.gateUp = gateUp.data();
  gradArgs.ldGateUp = both;
  if (sizes_.hasRowWeights) gradArgs.rowWeight = rowWeight_.data();
  gradArgs.rows = rows;
  gradArgs.inter = inter;
  gradArgs.kind = sizes_.activation;
  gradArgs.limit = sizes_.limit;
  std::vector<double> rowWeightGrad(static_cast<size_t>(rows)), terms(static_cast<size_t>(rows));
  ops::activationGradReference(gradArgs, grad.values.data(), rowWeightGrad.data());

  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < both; ++c) {
      const auto column = static_cast<size_t>(c % inter), row = static_cast<size_t>(r);
      const double gate = kept.values[row * static_cast<size_t>(both) + column];
      const double up =
          both > inter ? kept.values[row * static_cast<size_t>(both) + static_cast<size_t>(inter) + column]
                       : 1;
      const double size = (1 + std::abs(gate)) * (1 + std::abs(gate)) * (2 + std::abs(up));
      const double d = std::abs(toFloat(actGrad[row * static_cast<size_t>(inter) + column]));
      if (c < inter) act.margins.push_back(size * kFloats);
      if (c < inter) terms[row] += size * d;
      grad.margins.push_back(size * d * kFloats);
    }

  std::string wrong = firstDifference(act_, act);
  if (wrong.empty() && sizes_.storesGateUp) wrong = firstDifference(gateUp_, kept);
  if (wrong.empty() && sizes_.storesGateUp) wrong = firstDifference(gateUpGrad_, grad);
  if (wrong.empty() && sizes_.storesGateUp && sizes_.hasRowWeights)
    wrong = firstWrongRowWeightGrad(rowWeightGrad, terms);
  if (wrong.empty() && sizes_.storesGateUp && sizes_.storesWeightedAct)
    wrong = firstDifference(weightedAct_, expectedWeightedAct());
  return wrong;
}

// The bits of act, which the forward has stored from the same gate_up, times the weights.
ExpectedMatrix GatedCase::expectedWeightedAct() const {
  ExpectedMatrix weighted{
      "weighted act",
      0,
      {},
      std::vector<double>(static_cast<size_t>(act_.rows) * static_cast<size_t>(act_.columns))};
  for (int r = 0; r < act_.rows; ++r)
    for (int c = 0; c < act_.columns; ++c) {
      const float weight = sizes_.hasRowWeights ? rowWeight_[static_cast<size_t>(r)] : 1;
      weighted.values.push_back(fromBf16(toBf16(weight * static_cast<float>(act_.value(0, r, c)))));
    }
  return weighted;
}

std::string GatedCase::firstWrongRowWeightGrad(const std::vector<double>& expected,
                                               const std::vector<double>& sizes) const {
  for (size_t row = 0; row < expected.size(); ++row)
    if (!(std::abs(rowWeightGrad_[row] - expected[row]) <= sizes[row] * kFloats * 4))
      return fmt::format("row_weight_grad[{}] is {}, expected {}", row, rowWeightGrad_[row], expected[row]);
  return "";
}

}  // namespace sluice::gpu
