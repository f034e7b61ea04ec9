#include "runtime/cpu/weight_panels.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/cache_line.h"
#include "runtime/base/rounding.h"
#include "runtime/cpu/cpu_step.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

constexpr uint64_t kPacking = 1, kReady = 2, kNoRoom = 3;  // 0: not packed

constexpr uint64_t packState(uint64_t generation, uint64_t state) { return generation << 2 | state; }

// Whether the family reads a weight of the caller that kernels can pack.
bool isPackable(const TaskProgram& program, const ops::KernelSet& kernels, const Family& family) {
  if (!findInfo(family.op).multiplies() || program.at(findBuffer(family, &Operands::b)).role != Role::kInput)
    return false;
  return kernels.find(findProductTypes(program, family))->packWeight != nullptr;
}

}  // namespace

WeightPanels::WeightPanels(const Plan& plan, const ops::KernelSet& kernels, int64_t limit)
    : limit_(limit), setOf_(plan.program().families.size(), kNone) {
  for (size_t f = 0; f < setOf_.size(); ++f) {
    const Family& family = plan.program().families[f];
    if (limit > 0 && isPackable(plan.program(), kernels, family)) setOf_[f] = addSet(plan, kernels, family);
  }
}

uint32_t WeightPanels::addWeight(const std::array<BufferId, 3>& buffers) {
  const auto same = [&](const Weight& weight) { return weight.buffers == buffers; };
  const auto found = std::find_if(weights_.begin(), weights_.end(), same);
  if (found != weights_.end()) return static_cast<uint32_t>(found - weights_.begin());
  weights_.push_back({.buffers = buffers});
  return static_cast<uint32_t>(weights_.size() - 1);
}

uint32_t WeightPanels::addSet(const Plan& plan, const ops::KernelSet& kernels, const Family& family) {
  const Tiling& t = family.tiling;
  const ops::PackedScales scales = makePackedScales(plan.program(), family);
  const Operands ids = findOperands(family);
  std::array<BufferId, 3> buffers = {ids.b};
  if (scales.group != 0)
    buffers = {ids.b, ids.scaleB, ids.zeroB};
  else if (findInfo(t.roundB).isScaled)
    buffers = {ids.b, ids.amaxB};
  const Cut cut{addWeight(buffers),
                t.n,
                t.k,
                t.tileN,
                weightParts(family.op, t),
                isTransposed(family.op, t),
                findProductTypes(plan.program(), family),
                scales,
                t.roundB};
  const auto same = [&](const Set& set) { return set.cut == cut; };
  const auto found = std::find_if(sets_.begin(), sets_.end(), same);
  if (found != sets_.end()) return static_cast<uint32_t>(found - sets_.begin());
  const bool dense = plan.program().at(family.space).kind == SpaceKind::kTokens;
  const size_t count = size_t(family.tiles) * (dense ? 1 : plan.program().maxExperts());
  sets_.push_back({cut, family.tiles, panelCount_});
  panelCount_ += count;
  const size_t part = kernels.packedWeightBytes(std::min(t.tileN, t.n), t.k, cut.types, scales);
  maxBytes_ += static_cast<int64_t>(count * roundUpToLine(cut.parts * part));
  return static_cast<uint32_t>(sets_.size() - 1);
}

void WeightPanels::bind(std::span<const BoundTensor> bound) {
  for (Weight& known : weights_) {
    bool constant = true, rebound = false;
    for (size_t i = 0; i < known.buffers.size() && known.buffers[i]; ++i) {
      const BoundTensor& tensor = bound[known.buffers[i].value];
      constant &= tensor.constant;
      rebound |= tensor.version != known.versions[i];
      known.versions[i] = tensor.version;
    }
    if (!rebound) continue;
    known.constant = constant;
    known.rebound = true;
  }
}

Status WeightPanels::beginStep() {
  active_ = false;
  for (Weight& weight : weights_) {
    if (!weight.constant) continue;
    active_ = true;
    if (!weight.rebound) continue;
    weight.generation = ++generations_;
    weight.rebound = false;
  }
  if (!active_ || memory_.data() != nullptr) return {};
  auto memory = Reservation::reserve(static_cast<size_t>(std::min(limit_, maxBytes_)));
  if (!memory) return Error{fmt::format("packed weights: {}", memory.error().message)};
  memory_ = std::move(*memory);
  panels_ = std::vector<Entry>(panelCount_);
  return {};
}

std::byte* WeightPanels::take(size_t bytes) {
  size_t begin = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > memory_.size() - begin) return nullptr;
  } while (!used_.compare_exchange_weak(begin, begin + bytes, std::memory_order_relaxed));
  return memory_.data() + begin;
}

WeightPanels::Panel WeightPanels::claim(FamilyId family, int32_t expert, int32_t tile, size_t bytes) {
  if (setOf_[family.value] == kNone) return {};
  const Set& set = sets_[setOf_[family.value]];
  const Weight& weight = weights_[set.cut.weight];
  if (!weight.constant) return {};
  Entry& entry = panels_[set.first + size_t(expert) * set.tiles + tile];
  const uint64_t ready = packState(weight.generation, kReady);
  // pairs with the release in publish()
  uint64_t state = entry.state.load(std::memory_order_acquire);
  if (state == ready) return {entry.data, false, &entry.state, ready};
  // another task packs it, or there was no room for it
  if (state >> 2 == weight.generation) return {};
  if (!entry.state.compare_exchange_strong(state, packState(weight.generation, kPacking),
                                           std::memory_order_relaxed))
    return {};
  if (entry.data == nullptr) entry.data = take(roundUpToLine(bytes));
  if (entry.data != nullptr) return {entry.data, true, &entry.state, ready};
  entry.state.store(packState(weight.generation, kNoRoom), std::memory_order_relaxed);
  return {};
}

void WeightPanels::publish(const Panel& panel) {
  // pairs with the acquire in claim()
  panel.state->store(panel.ready, std::memory_order_release);
}

PackedWeights WeightPanels::packed() const {
  PackedWeights packed{.bytes = static_cast<int64_t>(used_.load(std::memory_order_relaxed))};
  if (panels_.empty()) return packed;
  for (size_t s = 0; s < sets_.size(); ++s) {
    const uint64_t generation = weights_[sets_[s].cut.weight].generation;
    const size_t end = s + 1 < sets_.size() ? sets_[s + 1].first : panelCount_;
    for (size_t i = sets_[s].first; i < end; ++i) {
      const uint64_t state = panels_[i].state.load(std::memory_order_relaxed);
      packed.panels += state == packState(generation, kReady);
      packed.withoutRoom += state == packState(generation, kNoRoom);
    }
  }
  return packed;
}

}  // namespace sluice
