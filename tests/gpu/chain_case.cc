#include "tests/gpu/chain_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "ops/gpu/model/launch.h"
#include "tests/gpu/chain_kernel.h"

namespace sluice::gpu {
namespace {

constexpr uint16_t kNaN = 0x7FD5;
constexpr int kSlotRows = 128;
constexpr int kCores = 3;
constexpr int kLanes = 2;
constexpr uint64_t kLimit = 10'000'000;  // ns of the model's time
// The first event was signalled before; then one per slot, and one for all results.
constexpr uint32_t kStart = 0;
constexpr uint64_t kStarted = 5;

uint16_t toBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

double toDouble(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

template <class T>
void registerVector(const std::vector<T>& values) {
  model::registerGlobal(values.data(), values.size() * sizeof(T));
}

void fill(HostMatrix& matrix, std::mt19937& random) {
  std::uniform_real_distribution<float> values(-1, 1);
  for (int o = 0; o < matrix.outers; ++o)
    for (int r = 0; r < matrix.rows; ++r)
      for (int c = 0; c < matrix.columns; ++c) matrix.at(o, r, c) = toBf16(values(random));
}

}  // namespace

HostMatrix::HostMatrix(int numOuters, int numRows, int numColumns, int spare)
    : outers(numOuters), rows(numRows), columns(numColumns), pitch_((columns + 7) / 8 * 8 + 8 * spare) {
  elements_.assign(static_cast<size_t>(pitch_) * static_cast<size_t>(outers * rows + 16), kNaN);
}

uint16_t& HostMatrix::at(int outer, int row, int column) {
  return elements_[static_cast<size_t>(outer * rows + row) * static_cast<size_t>(pitch_) +
                   static_cast<size_t>(column)];
}

double HostMatrix::value(int outer, int row, int column) const {
  return toDouble(const_cast<HostMatrix*>(this)->at(outer, row, column));
}

Matrix HostMatrix::operand(int boxRows) {
  const int64_t pitch = 2 * pitch_;
  return {model::mapOf(elements_.data(), 2, columns, rows, outers, pitch, pitch * rows, 64, boxRows),
          reinterpret_cast<std::byte*>(elements_.data()), pitch, columns};
}

void HostMatrix::registerAll() const { registerVector(elements_); }

bool HostMatrix::hasKeptGaps() const {
  for (size_t i = 0; i < elements_.size(); ++i) {
    const bool isGap = static_cast<int>(i % static_cast<size_t>(pitch_)) >= columns ||
                       static_cast<int>(i / static_cast<size_t>(pitch_)) >= outers * rows;
    if (isGap && elements_[i] != kNaN) return false;
  }
  return true;
}

ChainCase::Sizes ChainCase::sizesOf(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const auto major = [&] { return between(0, 1) == 0 ? Major::kK : Major::kMn; };
  Sizes sizes{};
  for (int& rows : sizes.rows) rows = between(1, 200);
  // Products of one stage let warpgroups be whole tasks apart.
  const bool isShort = between(0, 2) == 0;
  sizes.k = isShort ? between(8, 64) : between(72, 192);
  sizes.hidden = isShort ? between(8, 64) : between(64, 228);
  sizes.result = between(64, 228);
  sizes.columns = between(0, 2) == 0 ? 256 : 128;
  sizes.up = major();
  sizes.down = major();
  for (int& spare : sizes.spare) spare = between(0, 2);
  return sizes;
}

ChainCase::ChainCase(uint64_t seed) : ChainCase(seed, sizesOf(seed)) {}

ChainCase::ChainCase(uint64_t seed, const Sizes& sizes)
    : sizes_(sizes),
      rows_(1, sizes.rows[0] + sizes.rows[1], sizes.k, sizes.spare[0]),
      up_(2, sizes.up == Major::kMn ? sizes.k : sizes.hidden, sizes.up == Major::kMn ? sizes.hidden : sizes.k,
          sizes.spare[1]),
      hidden_(1, rows_.rows, sizes.hidden, sizes.spare[2]),
      down_(2, sizes.down == Major::kMn ? sizes.hidden : sizes.result,
            sizes.down == Major::kMn ? sizes.result : sizes.hidden, sizes.spare[3]),
      result_(1, rows_.rows, sizes.result, sizes.spare[4]) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&rows_, &up_, &down_}) fill(*matrix, random);
  const auto weightRows = [&](Major major) { return major == Major::kMn ? 64 : sizes.columns; };
  matrices_ = {rows_.operand(128),   up_.operand(weightRows(sizes.up)),     hidden_.operand(16),
               hidden_.operand(128), down_.operand(weightRows(sizes.down)), result_.operand(16)};
  addTasks(seed);
}

void ChainCase::addTasks(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 2);
  std::vector<std::vector<ProductTask>> lanes(kCores * kLanes);
  const auto add = [&](size_t lane, const ProductTask& task) {
    lanes[random() % kCores * kLanes + lane].push_back(task);
  };
  uint32_t event = kStart + 1;
  int row = 0;
  for (int expert = 0; expert < 2; ++expert)
    for (int left = sizes_.rows[expert]; left > 0; ++event) {
      const int rows = std::min(left, kSlotRows);
      const uint32_t amount = 1 + random() % 3;
      uint32_t tiles = 0;
      for (int column = 0; column < sizes_.hidden; column += sizes_.columns, ++tiles)
        add(1, {{0, 1, 2, sizes_.up, row, rows, expert, column, sizes_.k},
                {{0, 0}, {kStart, kStarted}},
                event,
                amount});
      for (int column = 0; column < sizes_.result; column += sizes_.columns)
        add(0, {{3, 4, 5, sizes_.down, row, rows, expert, column, sizes_.hidden},
                {{event, tiles * amount}, {kStart, kStarted}},
                0,
                0});
      row += rows;
      left -= rows;
    }
  for (std::vector<ProductTask>& lane : lanes) {
    std::shuffle(lane.begin(), lane.end(), random);
    lists_.push_back(static_cast<uint32_t>(tasks_.size()));
    tasks_.insert(tasks_.end(), lane.begin(), lane.end());
  }
  lists_.push_back(static_cast<uint32_t>(tasks_.size()));
  starts_.assign(static_cast<size_t>(event) * kCounterStride, 0);
  starts_[kStart * kCounterStride] = kStarted;
}

uint32_t ChainCase::loseSignal() {
  const auto found = std::ranges::find_if(tasks_, [](const ProductTask& task) { return task.amount > 0; });
  found->amount = 0;
  return found->event;
}

std::string ChainCase::run(int blocks, uint64_t seed) {
  for (HostMatrix* out : {&hidden_, &result_})
    for (int r = 0; r < out->rows; ++r)
      for (int c = 0; c < out->columns; ++c) out->at(0, r, c) = kNaN;
  heads_ = lists_;
  counters_ = starts_;
  reports_.assign(static_cast<size_t>(blocks), {});
  abort_ = 0;

  for (const HostMatrix* matrix : {&rows_, &up_, &hidden_, &down_, &result_}) matrix->registerAll();
  registerVector(matrices_);
  registerVector(tasks_);
  registerVector(lists_);
  registerVector(heads_);
  registerVector(counters_);
  registerVector(reports_);
  model::registerGlobal(&abort_, sizeof(abort_));
  const Chain chain = {matrices_.data(), tasks_.data(), lists_.data(), kCores,          kLanes,
                       counters_.data(), &abort_,       heads_.data(), reports_.data(), kLimit};
  std::string wrong = runChainKernel({.blocks = blocks, .seed = seed}, sizes_.columns, chain);
  if (!wrong.empty()) return "the model: " + wrong;
  if (abort_ != 0) return describeReports();
  wrong = firstWrongValue(hidden_, rows_, up_, sizes_.up, "hidden");
  return wrong.empty() ? firstWrongValue(result_, hidden_, down_, sizes_.down, "result") : wrong;
}

std::string ChainCase::describeReports() const {
  std::string text = "the kernel:";
  for (const StuckReport& each : reports_) {
    if (each.stuck == Stuck::kEvent)
      text += fmt::format(" core {} lane {} waits for event {} ({} of {}) before task {};", each.core,
                          each.lane, each.event, each.have, each.need, each.task);
    else if (each.stuck != Stuck::kNo)
      text += fmt::format(" core {} waits for a free {}, of task {};", each.core,
                          each.stuck == Stuck::kStage ? "stage" : "task record", each.task);
  }
  return text;
}

std::string ChainCase::firstWrongValue(const HostMatrix& out, const HostMatrix& a, const HostMatrix& weight,
                                       Major major, const char* name) const {
  for (int r = 0; r < out.rows; ++r)
    for (int c = 0; c < out.columns; ++c) {
      const int expert = r < sizes_.rows[0] ? 0 : 1;
      double sum = 0, sizes = 0;
      for (int k = 0; k < a.columns; ++k) {
        const double term = a.value(0, r, k) *
                            (major == Major::kMn ? weight.value(expert, k, c) : weight.value(expert, c, k));
        sum += term;
        sizes += std::abs(term);
      }
      // one rounding to bf16, and as many to fp32 as there are terms
      const double allowed = std::abs(sum) / 256 + sizes * a.columns * 0x1p-24;
      if (!(std::abs(out.value(0, r, c) - sum) <= allowed))
        return fmt::format("{}[{}, {}] is {}, expected {}", name, r, c, out.value(0, r, c), sum);
    }
  return out.hasKeptGaps() ? "" : fmt::format("something was written outside of {}", name);
}

}  // namespace sluice::gpu
