// Warps, blocks, registers and barriers in shared memory.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "ops/gpu/model/calls.h"
#include "ops/gpu/model/machine.h"

namespace sluice::gpu::model {
namespace {

constexpr int64_t kLook = 100'000;  // ns until hasEnded() says no

constexpr std::array<std::string_view, 16> kNames = {
    "syncBlock()",      "named barrier 1",  "named barrier 2",  "named barrier 3",
    "named barrier 4",  "named barrier 5",  "named barrier 6",  "named barrier 7",
    "named barrier 8",  "named barrier 9",  "named barrier 10", "named barrier 11",
    "named barrier 12", "named barrier 13", "named barrier 14", "named barrier 15"};

void endPhase(BarrierState& state) {
  if (state.pending != 0 || state.bytes != 0) return;
  ++state.phase;
  state.pending = state.count;
}

// Gives a word to the lanes of the warp, and returns the words of all lanes.
const std::array<uint32_t, 32>& exchange(Machine& m, uint32_t word, const char* what) {
  WarpState& warp = *m.block().warps[static_cast<size_t>(m.self().index / 32)];
  warp.values[warp.meeting.generation % 2][static_cast<size_t>(m.self().index % 32)] = word;
  return warp.values[m.align(what) % 2];
}

// Gives each thread of the warpgroup `count` registers, which may have to wait, together: the first thread
// counts.
void setRegisters(Machine& m, int count, const std::string& what, bool takes) {
  if (count < 24 || count > 240 || count % 8 != 0)
    m.fail(fmt::format("{}, expected a multiple of 8 from 24 to 240", what));
  m.checkTogether(what);
  m.align(what);
  Block& block = m.block();
  int& own = block.registers[static_cast<size_t>(m.self().index / 128)];
  const std::function<bool()> isSet = [&own, count] { return own == count; };
  if (m.self().index % 128 != 0) return m.wait("registers", {.function = &isSet});
  if (takes ? count < own : count > own) m.fail(fmt::format("{} with {} registers", what, own));
  const int more = (count - own) * 128;
  const std::function<bool()> areFree = [&block, more] { return block.freeRegisters >= more; };
  m.wait("registers that others give back", {.function = &areFree});
  block.freeRegisters -= more;
  own = count;
  m.progress();
}

}  // namespace

std::string barrierName(const Block& block, const Barrier* barrier) {
  return fmt::format("the barrier at {} of shared memory",
                     reinterpret_cast<const std::byte*>(barrier) - block.shared);
}

BarrierState& findState(Machine& m, const Barrier* barrier) {
  m.checkAccess(barrier, sizeof(Barrier), true);
  const auto found = m.block().barriers.find(barrier);
  if (found == m.block().barriers.end()) m.fail("uses a barrier that was not made");
  BarrierState& state = *found->second;
  if (state.maker != m.running &&
      m.threads[static_cast<size_t>(state.maker)]->barrierFences == state.fencesBefore)
    m.fail("uses a barrier whose maker has not called fenceBarrierInit()");
  return state;
}

void landBytes(BarrierState& state, int64_t bytes) {
  state.bytes -= bytes;
  endPhase(state);
}

void endHold(BarrierState& state) {
  --state.pending;
  endPhase(state);
}

void syncWarp() {
  const Quiet quiet;
  machine().align("syncWarp()", true);
}

uint32_t ballot(bool value) {
  const Quiet quiet;
  const auto& words = exchange(machine(), value ? 1 : 0, "ballot()");
  uint32_t bits = 0;
  for (size_t lane = 0; lane < 32; ++lane) bits |= words[lane] << lane;
  return bits;
}

uint32_t shuffle(uint32_t value, int lane) {
  const Quiet quiet;
  Machine& m = machine();
  if (lane < 0 || lane > 31) m.fail(fmt::format("shuffle(): lane {}, expected 0 to 31", lane));
  return exchange(m, value, "shuffle()")[static_cast<size_t>(lane)];
}

void syncBlock() {
  const Quiet quiet;
  Machine& m = machine();
  m.meet(m.block().named[0].meeting, m.launch.threads, "syncBlock()", true);
}

void syncNamed(int barrier, int threads) {
  const Quiet quiet;
  Machine& m = machine();
  if (barrier < 1 || barrier > 15 || threads < 32 || threads % 32 != 0 || threads > m.launch.threads)
    m.fail(fmt::format(
        "syncNamed({}, {}), expected a barrier of 1 to 15 and a multiple of 32 threads of the block", barrier,
        threads));
  NamedBarrier& named = m.block().named[static_cast<size_t>(barrier)];
  if (named.meeting.arrived > 0 && named.threads != threads)
    m.fail(fmt::format("syncNamed({}, {}) where others expect {} threads", barrier, threads, named.threads));
  named.threads = threads;
  m.meet(named.meeting, threads, kNames[static_cast<size_t>(barrier)], true);
}

void takeRegisters(int count) {
  const Quiet quiet;
  setRegisters(machine(), count, fmt::format("takeRegisters({})", count), true);
}

void releaseRegisters(int count) {
  const Quiet quiet;
  setRegisters(machine(), count, fmt::format("releaseRegisters({})", count), false);
}

void initBarrier(Barrier* barrier, int count) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  m.checkAccess(barrier, sizeof(Barrier), true);
  if (count < 1 || count >= 1 << 20) m.fail(fmt::format("initBarrier(): {} arrivals", count));
  auto state = std::make_unique<BarrierState>();
  state->count = state->pending = count;
  state->maker = m.running;
  state->fencesBefore = m.self().barrierFences;
  announceWrite(barrier, sizeof(Barrier));
  m.block().barriers[barrier] = std::move(state);
}

void fenceBarrierInit() {
  const Quiet quiet;
  ++machine().self().barrierFences;
  machine().yield();
}

void arrive(Barrier* barrier, uint32_t bytes) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  BarrierState& state = findState(m, barrier);
  if (state.pending == 0)
    m.fail(fmt::format("arrives at {} more often than {} times in a phase", barrierName(m.block(), barrier),
                       state.count));
  state.order[state.phase % 2].releaseBy(m.self());
  state.bytes += bytes;
  --state.pending;
  endPhase(state);
  m.progress();
}

bool hasEnded(Barrier* barrier, int parity) {
  const Quiet quiet;
  Machine& m = machine();
  BarrierState& state = findState(m, barrier);
  if (parity != 0 && parity != 1) m.fail(fmt::format("hasEnded(): parity {}", parity));
  const Condition ended{.number = &state.phase, .mask = 1, .before = static_cast<uint64_t>(parity)};
  m.self().waitsForPhase = barrier;
  m.wait("the end of a phase", ended, m.now + kLook);
  m.self().waitsForPhase = nullptr;
  m.self().apartSince = "hasEnded()";
  if (!ended.holds()) return false;
  state.order[static_cast<size_t>(parity)].acquireBy(m.self());
  return true;
}

}  // namespace sluice::gpu::model
