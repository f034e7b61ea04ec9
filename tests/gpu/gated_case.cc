#include "tests/gpu/gated_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/activation/reference.h"
#include "ops/activation_grad/reference.h"
#include "ops/gmm/reference.h"

namespace sluice::gpu {
namespace {

// Indices of matrices.
enum : uint16_t { kRows, kUp, kGateUp, kAct, kGrad, kDown, kGateUpGrad, kActAgain };

void fill(HostMatrix& matrix, std::mt19937& random) {
  std::uniform_int_distribution<int> values(-16, 16);
  for (int o = 0; o < matrix.outers; ++o)
    for (int r = 0; r < matrix.rows; ++r)
      for (int c = 0; c < matrix.columns; ++c)
        matrix.at(o, r, c) = toBf16(static_cast<float>(values(random)) / 16);
}

int rowsOf(Major major, int k, int columns) { return major == Major::kMn ? k : columns; }

// a * weight[e] of each row's expert, rounded to bf16; no gaps.
std::vector<BFloat16> productOf(const HostMatrix& a, const HostMatrix& weight, Major major, int columns,
                                const int (&rowsOfExpert)[2]) {
  const auto at = [](const HostMatrix& matrix, int row) {
    return reinterpret_cast<const BFloat16*>(matrix.elements().data()) +
           int64_t{row} * int64_t{matrix.pitch()};
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
    std::vector<double> sums(static_cast<size_t>(args.rows) * static_cast<size_t>(columns));
    ops::gmmReference(args, sums.data());
    for (const double sum : sums) result.push_back(toBFloat16(static_cast<float>(sum)));
  }
  return result;
}

// What a matrix should be, without gaps, and how far it may be from that: `relative` to it, and a margin.
struct Expected {
  const char* name;
  double relative;  // 0: already rounded
  std::vector<double> values, margins;
};
constexpr double kRounding = 0x1p-8;  // to bf16

std::string firstDifference(const HostMatrix& found, const Expected& expected) {
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
  sizes.up = between(0, 1) == 0 ? Major::kK : Major::kMn;
  sizes.down = between(0, 1) == 0 ? Major::kK : Major::kMn;
  sizes.storesGateUp = between(0, 3) != 0;
  sizes.storesActAgain = between(0, 1) == 0;
  for (int& spare : sizes.spare) spare = between(0, 2);
  return sizes;
}

GatedCase::GatedCase(uint64_t seed) : GatedCase(seed, sizesOf(seed)) {}

GatedCase::GatedCase(uint64_t seed, const Sizes& s)
    : sizes_(s),
      rows_(1, s.rows[0] + s.rows[1], s.k, s.spare[kRows]),
      up_(2, rowsOf(s.up, s.k, 2 * s.inter), rowsOf(s.up, 2 * s.inter, s.k), s.spare[kUp]),
      gateUp_(1, rows_.rows, 2 * s.inter, s.spare[kGateUp]),
      act_(1, rows_.rows, s.inter, s.spare[kAct]),
      grad_(1, rows_.rows, s.gradK, s.spare[kGrad]),
      down_(2, rowsOf(s.down, s.gradK, s.inter), rowsOf(s.down, s.inter, s.gradK), s.spare[kDown]),
      gateUpGrad_(1, rows_.rows, 2 * s.inter, s.spare[kGateUpGrad]),
      actAgain_(1, rows_.rows, s.inter, s.spare[kActAgain]) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&rows_, &up_, &grad_, &down_}) fill(*matrix, random);
  const auto weightRows = [&s](Major major) { return major == Major::kMn ? 64 : s.columns / 2; };
  matrices_ = {
      rows_.operand(128), up_.operand(weightRows(s.up)),     gateUp_.operand(16),     act_.operand(16),
      grad_.operand(128), down_.operand(weightRows(s.down)), gateUpGrad_.operand(16), actAgain_.operand(16)};
  addTasks(seed);
}

void GatedCase::addTasks(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 2);
  const uint16_t gateUp = sizes_.storesGateUp ? uint16_t{kGateUp} : kNoMatrix;
  const uint16_t again = sizes_.storesActAgain ? uint16_t{kActAgain} : kNoMatrix;
  uint32_t event = kStart + 1;
  int row = 0;
  for (int expert = 0; expert < 2; ++expert)
    for (int left = sizes_.rows[expert]; left > 0; ++event) {
      const int rows = std::min(left, kSlotRows);
      uint32_t tiles = 0;
      for (int column = 0; column < sizes_.inter; column += sizes_.columns / 2, ++tiles)
        tasks_.add(1,
                   Product{kRows, kUp, kAct, sizes_.up, row, rows, expert, column, sizes_.k,
                           ProductKind::kActivation, gateUp},
                   {{{0, 0}, {kStart, kStarted}}, event, 1}, random);
      for (int column = 0; column < sizes_.inter && sizes_.storesGateUp; column += sizes_.columns)
        tasks_.add(0,
                   Product{kGrad, kDown, kGateUpGrad, sizes_.down, row, rows, expert, column, sizes_.gradK,
                           ProductKind::kActivationGrad, gateUp, again},
                   {{{event, tiles}, {kStart, kStarted}}, 0, 0}, random);
      row += rows;
      left -= rows;
    }
  tasks_.shuffle(event, random);
}

std::string GatedCase::run(int blocks, uint64_t seed) {
  for (HostMatrix* out : {&gateUp_, &act_, &gateUpGrad_, &actAgain_}) out->clear();
  for (const HostMatrix* matrix : {&rows_, &up_, &gateUp_, &act_, &grad_, &down_, &gateUpGrad_, &actAgain_})
    matrix->registerAll();
  const std::string wrong = tasks_.run(matrices_, sizes_.columns, blocks, seed);
  return wrong.empty() ? firstWrongValue() : wrong;
}

std::vector<uint16_t> GatedCase::results() const {
  std::vector<uint16_t> all;
  for (const HostMatrix* out : {&gateUp_, &act_, &gateUpGrad_, &actAgain_})
    all.insert(all.end(), out->elements().begin(), out->elements().end());
  return all;
}

std::string GatedCase::firstWrongValue() const {
  const int rows = rows_.rows, inter = sizes_.inter;
  const auto gateUp = productOf(rows_, up_, sizes_.up, 2 * inter, sizes_.rows);
  const auto actGrad = productOf(grad_, down_, sizes_.down, inter, sizes_.rows);
  const auto size = static_cast<size_t>(rows) * static_cast<size_t>(inter);
  Expected both{"gate_up", 0, {}, std::vector<double>(2 * size)};
  for (const BFloat16 value : gateUp) both.values.push_back(toFloat(value));
  Expected act{"act", kRounding, std::vector<double>(size), {}};
  ops::ActivationArgs args{};
  args.gateUp = gateUp.data();
  args.ldGateUp = 2 * inter;
  args.rows = rows;
  args.inter = inter;
  ops::activationReference(args, act.values.data());

  Expected grad{"gate_up_grad", kRounding, std::vector<double>(2 * size), {}};
  ops::ActivationGradArgs gradArgs{};
  gradArgs.actGrad = actGrad.data();
  gradArgs.ldActGrad = inter;
  gradArgs.gateUp = gateUp.data();
  gradArgs.ldGateUp = 2 * inter;
  gradArgs.rows = rows;
  gradArgs.inter = inter;
  std::vector<double> rowWeightGrad(static_cast<size_t>(rows));
  ops::activationGradReference(gradArgs, grad.values.data(), rowWeightGrad.data());

  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < 2 * inter; ++c) {
      const auto first = static_cast<size_t>(r) * static_cast<size_t>(inter);
      const auto column = static_cast<size_t>(c % inter);
      const double gate = both.values[2 * first + column];
      const double up = both.values[2 * first + static_cast<size_t>(inter) + column];
      const double margin = (1 + std::abs(gate)) * (1 + std::abs(up)) * 0x1p-22;
      if (c < inter) act.margins.push_back(margin);
      grad.margins.push_back(margin * std::abs(toFloat(actGrad[first + column])));
    }

  std::string wrong = firstDifference(act_, act);
  if (wrong.empty() && sizes_.storesGateUp) wrong = firstDifference(gateUp_, both);
  if (wrong.empty() && sizes_.storesGateUp) wrong = firstDifference(gateUpGrad_, grad);
  act.name = "act again";
  if (wrong.empty() && sizes_.storesGateUp && sizes_.storesActAgain) wrong = firstDifference(actAgain_, act);
  return wrong;
}

}  // namespace sluice::gpu
