// Products of a warpgroup. They happen some time between their issue and the wait for them, in order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "ops/gpu/model/calls.h"
#include "ops/gpu/model/machine.h"

namespace sluice::gpu::model {

namespace {

constexpr int kRows = 64, kDepth = 16, kMaxColumns = 256;
constexpr float kFlying = 1.2345e-30F;  // of a sum in flight: an addition changes it

// What describe() packs: where the operand is in shared memory, and its pitch.
uint64_t packed(uint64_t place, uint64_t pitch) { return place | pitch << 32; }
uint64_t readPlace(uint64_t description) { return description & 0xffffffff; }
uint64_t readPitch(uint64_t description) { return description >> 32; }

WarpgroupState& groupOf(Machine& m) {
  return *m.block().warpgroups[static_cast<size_t>(m.self().index / 128)];
}

void alignTogether(Machine& m, std::string_view what) {
  m.checkTogether(what);
  m.align(what);
}

// Calls use(place in shared memory, line, k) for the elements of an operand with `lines` rows or columns. The
// place is where the hardware finds the element: the exchange of 16-byte parts depends on the address.
template <class Use>
void forElements(uint64_t description, Major major, int lines, const Use& use) {
  const uint64_t place = readPlace(description), pitch = readPitch(description);
  for (int line = 0; line < lines; ++line)
    for (int k = 0; k < kDepth; ++k) {
      const auto l = static_cast<uint64_t>(line), depth = static_cast<uint64_t>(k);
      const uint64_t plain = major == Major::kK ? place + l * 128 + depth * 2
                                                : place + l / 64 * pitch + depth * 128 + l % 64 * 2;
      use(plain ^ (plain >> 7 & 7) << 4, line, k);
    }
}

float fromBf16(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// The element of a line and k is at line + k * lines.
std::vector<float> operand(Machine& m, const Block& block, uint64_t description, Major major, int lines,
                           uint64_t seen) {
  std::vector<float> values(static_cast<size_t>(lines * kDepth));
  uint64_t last = UINT64_MAX;
  forElements(description, major, lines, [&](uint64_t place, int line, int k) {
    if (place + 2 > m.launch.sharedBytes) return m.note("a product reads beyond the shared memory");
    values[static_cast<size_t>(line + k * lines)] = fromBf16(block.shared + place);
    if (place / kGranule == last) return;
    last = place / kGranule;
    checkFenced(m, block.shared + last * kGranule, kGranule, "product", seen);
    announceRead(block.shared + last * kGranule, kGranule);
  });
  return values;
}

void happen(Machine& m, Block& block, Product& product) {
  product.issue->acquire();
  const std::vector<float> a = operand(m, block, product.a, product.majorA, kRows, product.seenEpoch);
  const std::vector<float> b =
      operand(m, block, product.b, product.majorB, product.columns, product.seenEpoch);
  const auto columns = static_cast<size_t>(product.columns);
  for (size_t row = 0; row < kRows; ++row) {
    // the thread and the place among its sums (hw.h)
    const auto sumAt = [&](size_t column) -> float& {
      const size_t thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
      return product.sums[thread][column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
    };
    std::array<float, kMaxColumns> sums{};
    for (size_t c = 0; c < columns && product.add; ++c) sums[c] = sumAt(c);
    for (size_t k = 0; k < kDepth; ++k) {
      const float left = a[row + k * kRows];
      const float* const right = &b[k * columns];
      for (size_t c = 0; c < columns; ++c) sums[c] += left * right[c];
    }
    for (size_t c = 0; c < columns; ++c) sumAt(c) = sums[c];
  }
  product.end->release();
}

// The values of a sum in flight; its place holds a pattern until the products are waited for.
FlyingSum& takeOff(Machine& m, float* place, int count) {
  Thread& own = m.self();
  const auto found = std::ranges::find_if(own.flying, [&](const auto& each) { return each->place == place; });
  if (found != own.flying.end()) return **found;
  if (!own.mayMultiply) m.fail("multiplies into sums that it has touched, without fenceProducts()");
  auto sum = std::make_unique<FlyingSum>();
  sum->place = place;
  sum->values.assign(place, place + count);
  std::fill_n(place, count, kFlying);
  own.flying.push_back(std::move(sum));
  return *own.flying.back();
}

void landSums(Machine& m, uint64_t done) {
  Thread& own = m.self();
  std::erase_if(own.flying, [&](const auto& sum) {
    if (sum->last >= done) return false;
    for (size_t i = 0; i < sum->values.size(); ++i) {
      if (std::bit_cast<uint32_t>(sum->place[i]) != std::bit_cast<uint32_t>(kFlying))
        m.fail("sums were touched while products were in flight");
      sum->place[i] = sum->values[i];
    }
    own.mayMultiply = false;
    return true;
  });
}

}  // namespace

uint64_t describe(const std::byte* tile, Major major, uint32_t pitch) {
  const Quiet quiet;
  Machine& m = machine();
  m.checkAccess(tile, 16, true);
  const auto place = static_cast<uint64_t>(tile - m.block().shared);
  const bool fits =
      major == Major::kK ? place % 1024 < 128 && place % 32 == 0 : place % 1024 == 0 && pitch % 1024 == 0;
  if (!fits) m.fail(fmt::format("describes an operand at {} of shared memory with pitch {}", place, pitch));
  return packed(place, pitch);
}

void fenceProducts() {
  const Quiet quiet;
  alignTogether(machine(), "fenceProducts()");
  machine().self().mayMultiply = true;
}

void multiply(int columns, Major majorA, Major majorB, float* sum, uint64_t a, uint64_t b, bool add) {
  const Quiet quiet;
  Machine& m = machine();
  m.checkTogether("multiply()");
  m.yield();
  WarpgroupState& group = groupOf(m);
  Thread& own = m.self();
  const uint64_t number = own.issued++;
  if (number == group.first + group.products.size()) {
    Product& made = group.products.emplace_back();
    made.columns = columns;
    made.majorA = majorA;
    made.majorB = majorB;
    made.a = a;
    made.b = b;
    made.add = add;
  }
  Product& product = group.products[number - group.first];
  if (product.columns != columns || product.majorA != majorA || product.majorB != majorB || product.a != a ||
      product.b != b || product.add != add)
    m.fail("issues another product than the other threads of its warpgroup");
  FlyingSum& flying = takeOff(m, sum, columns / 2);
  flying.last = number;
  product.sums[static_cast<size_t>(own.index % 128)] = flying.values.data();
  product.seenEpoch = std::min(product.seenEpoch, own.seenEpoch);
  product.issue->release();
  if (++product.issued < 128) return;
  Block* const block = &m.block();
  m.post([&group, number] { return group.next == number; },
         [&m, &group, block, number] {
           Product& product = group.products[number - group.first];
           group.multiplies.act([&] { happen(m, *block, product); });
           ++group.next;
         });
  m.progress();
}

void groupProducts() {
  const Quiet quiet;
  Machine& m = machine();
  alignTogether(m, "groupProducts()");
  m.self().productGroups.push_back(m.self().issued);
}

void waitProducts(int groups) {
  const Quiet quiet;
  Machine& m = machine();
  alignTogether(m, groups == 0   ? "waitProducts<0>()"
                   : groups == 1 ? "waitProducts<1>()"
                                 : "waitProducts() of all but several groups");
  Thread& own = m.self();
  WarpgroupState& group = groupOf(m);
  const size_t over =
      own.productGroups.size() - std::min(own.productGroups.size(), static_cast<size_t>(groups));
  if (over == 0) return;
  const uint64_t done = own.productGroups[over - 1];
  own.productGroups.erase(own.productGroups.begin(),
                          own.productGroups.begin() + static_cast<ptrdiff_t>(over));
  const std::function<bool()> isOver = [&group, done] { return group.next >= done; };
  m.wait("its products", {.function = &isOver});
  uint64_t& waited = group.waited[static_cast<size_t>(own.index % 128)];
  for (; waited < done; ++waited) group.products[waited - group.first].end->acquire();
  landSums(m, done);
  const uint64_t all = std::ranges::min(group.waited);
  for (; group.first < all; ++group.first) group.products.pop_front();
}

}  // namespace sluice::gpu::model
