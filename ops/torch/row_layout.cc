#include "ops/torch/row_layout.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

namespace sluice {
namespace {

// `received` and its pads; at most `multiple` or twice `received`, so that it fits.
int64_t paddedTo(int64_t multiple, int64_t received) {
  const int64_t beyond = received % multiple;
  return beyond == 0 ? received : received - beyond + multiple;
}

}  // namespace

bool RowLayout::hasGaps() const {
  int64_t next = 0;
  for (const Expert& expert : experts) {
    if (expert.received > 0 && expert.first != next) return true;
    next += expert.received;
  }
  return false;
}

Expected<RowLayout> makeRowLayout(std::span<const int32_t> firstRows, int64_t fixed, int64_t multiple) {
  RowLayout layout;
  layout.received = firstRows.back();
  for (size_t e = 0; e + 1 < firstRows.size(); ++e) {
    const int64_t received = firstRows[e + 1] - firstRows[e];
    const int64_t padded = paddedTo(multiple, received);
    if (padded > kMaxRowsWithPads - layout.rows)
      return Error{fmt::format("pad_multiple is {}, but {} rows of {} experts with pads are more than {}",
                               multiple, layout.received, firstRows.size() - 1, kMaxRowsWithPads)};
    layout.experts.push_back({layout.rows, received, padded});
    layout.rows += padded;
  }
  if (fixed < 0) return layout;
  if (fixed > kMaxRowsWithPads)
    return Error{fmt::format("num_permuted_tokens is {}, expected at most {}", fixed, kMaxRowsWithPads)};
  if (layout.rows > fixed)
    return Error{fmt::format(
        "num_permuted_tokens is {}, but there are {} rows{}", fixed, layout.received,
        multiple == 1 ? ""
                      : fmt::format(", {} with experts padded to multiples of {}", layout.rows, multiple))};
  layout.rows = fixed;
  return layout;
}

void spreadRows(const RowLayout& layout, const void* received, void* to, int64_t rowBytes) {
  const auto* source = static_cast<const std::byte*>(received);
  auto* const target = static_cast<std::byte*>(to);
  int64_t end = 0;  // of what is filled
  const auto fillUpTo = [&](int64_t row) {
    if (row > end) std::memset(target + end * rowBytes, 0, static_cast<size_t>((row - end) * rowBytes));
  };
  for (const RowLayout::Expert& expert : layout.experts) {
    if (expert.received == 0) continue;
    fillUpTo(expert.first);
    const int64_t bytes = expert.received * rowBytes;
    if (source != target + expert.first * rowBytes)
      std::memcpy(target + expert.first * rowBytes, source, static_cast<size_t>(bytes));
    source += bytes;
    end = expert.first + expert.received;
  }
  fillUpTo(layout.rows);
}

void gatherRows(const RowLayout& layout, const void* from, void* received, int64_t rowBytes) {
  auto* target = static_cast<std::byte*>(received);
  for (const RowLayout::Expert& expert : layout.experts) {
    const int64_t bytes = expert.received * rowBytes;
    if (bytes == 0) continue;
    std::memcpy(target, static_cast<const std::byte*>(from) + expert.first * rowBytes,
                static_cast<size_t>(bytes));
    target += bytes;
  }
}

}  // namespace sluice
