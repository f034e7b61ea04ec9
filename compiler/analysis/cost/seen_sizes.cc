#include "compiler/analysis/cost/seen_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

namespace sluice {
namespace {

constexpr double kClose = 1.05;  // candidates may take this factor longer than the fastest
constexpr int32_t kWide = 1024;  // columns of a tile

auto sizesKind(const CutSizes& sizes) {
  const int64_t area = int64_t{sizes.tiles.weightGradRows} * sizes.tiles.weightGradColumns;
  return std::tuple(sizes.slotRows, sizes.tiles.gmmColumns, std::bit_width(static_cast<uint64_t>(area)));
}

}  // namespace

void SeenSizes::add(const CutSizes& sizes, const LayerCost& cost) {
  if (!seen_.empty() && cost.seconds < fastest().seconds) fastest_ = seen_.size();
  seen_.push_back({sizes, cost.seconds, cost.busy});
}

bool SeenSizes::isAsFast(const SeenSize& size) const { return isNoise(size.seconds, fastest().seconds); }

bool SeenSizes::isBetter(const SeenSize& a, const SeenSize& b) const {
  const bool asFast = isAsFast(a);
  if (asFast != isAsFast(b)) return asFast;
  if (asFast && isNoise(fastest().seconds, fastest().busy)) {
    const int32_t columns = std::min(a.sizes.tiles.gmmColumns, kWide),
                  others = std::min(b.sizes.tiles.gmmColumns, kWide);
    if (columns != others) return columns > others;
  }
  return a.seconds + a.busy < b.seconds + b.busy;
}

const SeenSize& SeenSizes::preferred() const {
  return *std::min_element(seen_.begin(), seen_.end(),
                           [this](const SeenSize& a, const SeenSize& b) { return isBetter(a, b); });
}

std::vector<CutSizes> SeenSizes::candidates(size_t most) const {
  std::vector<const SeenSize*> close;
  std::set<decltype(sizesKind({}))> kinds;
  for (const SeenSize* size : inOrder())
    if (size->seconds < fastest().seconds * kClose && kinds.insert(sizesKind(size->sizes)).second)
      close.push_back(size);
  std::vector<size_t> picked;
  std::map<int32_t, size_t> withRows;
  for (size_t quota = 1; picked.size() + 1 < most && quota <= close.size(); ++quota)
    for (size_t i = 0; i < close.size() && picked.size() + 1 < most; ++i) {
      size_t& alike = withRows[close[i]->sizes.slotRows];
      if (alike >= quota || std::find(picked.begin(), picked.end(), i) != picked.end()) continue;
      ++alike;
      picked.push_back(i);
    }
  std::sort(picked.begin(), picked.end());
  std::vector<CutSizes> sizes;
  for (size_t i : picked) {
    sizes.push_back(close[i]->sizes);
    sizes.back().tokenSlot = sizes.front().tokenSlot;
  }
  if (std::find(sizes.begin(), sizes.end(), fastest().sizes) == sizes.end()) sizes.push_back(fastest().sizes);
  return sizes;
}

std::vector<const SeenSize*> SeenSizes::inOrder() const {
  std::vector<const SeenSize*> order;
  for (const SeenSize& size : seen_) order.push_back(&size);
  std::stable_sort(order.begin(), order.end(),
                   [this](const SeenSize* a, const SeenSize* b) { return isBetter(*a, *b); });
  return order;
}

std::string SeenSizes::why(const CutSizes& chosen, const std::function<int64_t(const CutSizes&)>& valueOf,
                           const std::function<std::string(const CutSizes&)>& text) const {
  const int64_t value = valueOf(chosen);
  const SeenSize *mine = nullptr, *other = nullptr;
  for (const SeenSize& size : seen_) {
    const SeenSize*& best = valueOf(size.sizes) == value ? mine : other;
    if (best == nullptr || isBetter(size, *best)) best = &size;
  }
  if (mine == nullptr) return {};
  if (other == nullptr) return fmt::format("{}; nothing else to choose", timeText(mine->seconds));
  return fmt::format("{}; next best {}, {}", timeText(mine->seconds), text(other->sizes),
                     timeText(other->seconds));
}

std::string SeenSizes::whyNotFastest(const CutSizes& chosen) const {
  const auto mine =
      std::find_if(seen_.begin(), seen_.end(), [&](const SeenSize& size) { return size.sizes == chosen; });
  if (mine == seen_.end() || !isAsFast(*mine)) return {};
  if (mine->busy >= fastest().busy) {
    if (chosen.tiles.gmmColumns <= fastest().sizes.tiles.gmmColumns) return {};
    return fmt::format("as fast as {} within noise, with wider tiles: {}, not {}", sizesText(fastest().sizes),
                       timeText(mine->seconds), timeText(fastest().seconds));
  }
  return fmt::format(
      "as fast as {} within noise, with less work: {} with {} of work per core, not {} with {}",
      sizesText(fastest().sizes), timeText(mine->seconds), timeText(mine->busy), timeText(fastest().seconds),
      timeText(fastest().busy));
}

std::string sizesText(const CutSizes& sizes) {
  return fmt::format("slots of {} rows and {} tokens, tiles of {} columns and of {} x {}", sizes.slotRows,
                     sizes.tokenSlot, sizes.tiles.gmmColumns, sizes.tiles.weightGradRows,
                     sizes.tiles.weightGradColumns);
}

std::string timeText(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

}  // namespace sluice
