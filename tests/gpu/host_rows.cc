#include "tests/gpu/host_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/dtype.h"

namespace sluice::gpu {
HostRows::HostRows(const Layout& layout) : layout_(layout) {
  bytes_.assign(offsetOf(layout.rows) + 64, layout_.gap);
}

size_t HostRows::offsetOf(int row) const {
  return static_cast<size_t>(layout_.offset * layout_.elementBytes + row * pitch());
}

std::byte* HostRows::row(int row) { return bytes_.data() + offsetOf(row); }
std::span<const std::byte> HostRows::row(int row) const {
  return {bytes_.data() + offsetOf(row), static_cast<size_t>(rowBytes())};
}

double HostRows::value(int row, int column) const {
  const auto* const at = bytes_.data() + offsetOf(row) + column * layout_.elementBytes;
  if (layout_.elementBytes == 4) return *reinterpret_cast<const float*>(at);
  return toFloat(*reinterpret_cast<const BFloat16*>(at));
}

void HostRows::set(int row, int column, double value) {
  auto* const at = bytes_.data() + offsetOf(row) + column * layout_.elementBytes;
  if (layout_.elementBytes == 4)
    *reinterpret_cast<float*>(at) = static_cast<float>(value);
  else
    *reinterpret_cast<BFloat16*>(at) = toBFloat16(static_cast<float>(value));
}

void HostRows::fill(std::mt19937& random) {
  std::uniform_int_distribution<int> values(-16, 16);
  for (int r = 0; r < rows(); ++r)
    for (int c = 0; c < columns(); ++c)
      if (layout_.elementBytes == 1)
        row(r)[c] = static_cast<std::byte>(random());
      else
        set(r, c, values(random) / 16.0);
}

void HostRows::clear() { std::ranges::fill(bytes_, layout_.gap); }

bool HostRows::hasKeptGaps() const {
  std::vector<std::byte> gaps = bytes_;
  for (int r = 0; r < rows(); ++r)
    std::fill_n(gaps.begin() + static_cast<std::ptrdiff_t>(offsetOf(r)), rowBytes(), layout_.gap);
  return std::ranges::all_of(gaps, [this](std::byte each) { return each == layout_.gap; });
}

}  // namespace sluice::gpu
