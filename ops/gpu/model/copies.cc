// Copies between global and shared memory: boxes of matrices and runs of bytes by TMA, parts by threads.
//
// A load fills its place with NaN when it is asked for, and lands later, as a whole. A store reads and writes
// at two later moments.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/gpu/model/calls.h"
#include "ops/gpu/model/machine.h"

namespace sluice::gpu::model {

namespace {

constexpr uint32_t kAreaRow = 128;  // bytes
constexpr std::byte kNan{0xff};     // of bf16 and fp32 alike

// What a TensorMap holds here.
struct Map {
  const std::byte* data;
  int64_t rowPitch, outerPitch;
  int32_t elementBytes, columns, rows, outers, boxColumns, boxRows;
  uint64_t mark;
};
constexpr uint64_t kMark = 0x736c75696365;
static_assert(sizeof(Map) <= sizeof(TensorMap));

Map mapFrom(Machine& m, const TensorMap* map) {
  Map result;
  std::memcpy(&result, map, sizeof(result));
  if (result.mark != kMark || reinterpret_cast<uintptr_t>(map) % 128 != 0)
    m.fail("copies by something that is not a TensorMap aligned to 128 bytes");
  return result;
}

// Reads the map of a copy: a map in memory of the device, not among the arguments of the kernel, needs a
// fence.
Map fencedMapFrom(Machine& m, const TensorMap* map) {
  if (m.findRegion(map) != nullptr && !m.block().fencedMaps.contains(map))
    m.fail("copies by a TensorMap in memory without fenceMap()");
  return mapFrom(m, map);
}

// The part of a box that lies in the matrix.
struct Box {
  Map map;
  int column = 0, row = 0, outer = 0;

  size_t bytes() const { return kAreaRow * static_cast<size_t>(map.boxRows); }
  // The elements of a row of the box that exist; 0: the row does not.
  int countColumns(int boxRow) const {
    if (row + boxRow < 0 || row + boxRow >= map.rows || outer < 0 || outer >= map.outers || column < 0)
      return 0;
    return std::clamp(map.columns - column, 0, map.boxColumns);
  }
  std::byte* rowIn(int boxRow) const {
    return const_cast<std::byte*>(map.data) + outer * map.outerPitch + (row + boxRow) * map.rowPitch +
           int64_t{column} * map.elementBytes;
  }
};

void checkPlace(Machine& m, const std::byte* shared, size_t bytes, size_t alignment) {
  m.checkAccess(shared, bytes, true);
  if (static_cast<size_t>(shared - m.block().shared) % alignment != 0)
    m.fail(fmt::format("copies at {} of shared memory, expected a multiple of {}", shared - m.block().shared,
                       alignment));
}

void forgetWriters(Machine& m, const std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kGranule)
    if (Written* const written = m.writtenAt(to + at)) *written = {};
}

// `first`: the row of swizzled() at that place, counted from the last multiple of 1024 bytes on.
void land(const Box& box, std::byte* to, uint32_t first, int rows) {
  for (int r = 0; r < box.map.boxRows; ++r) {
    std::byte line[kAreaRow] = {};
    const auto there = static_cast<size_t>(box.countColumns(r) * box.map.elementBytes);
    if (r >= rows)
      std::memset(line, static_cast<int>(kNan), there);
    else if (there > 0)
      std::memcpy(line, box.rowIn(r), there), announceRead(box.rowIn(r), there);
    for (uint32_t byte = 0; byte < kAreaRow; byte += 16)
      std::memcpy(to - first * kAreaRow + swizzled(first + static_cast<uint32_t>(r), byte), line + byte, 16);
  }
  announceWrite(to, box.bytes());
}

std::vector<std::byte> gatherLines(const Box& box, const std::byte* from) {
  std::vector<std::byte> lines(box.bytes());
  for (int r = 0; r < box.map.boxRows; ++r)
    for (uint32_t byte = 0; byte < kAreaRow; byte += 16)
      std::memcpy(lines.data() + static_cast<size_t>(r) * kAreaRow + byte,
                  from + swizzled(static_cast<uint32_t>(r), byte), 16);
  announceRead(from, box.bytes());
  return lines;
}

void writeLines(const Box& box, const std::vector<std::byte>& lines, bool adds) {
  for (int r = 0; r < box.map.boxRows; ++r) {
    const int columns = box.countColumns(r);
    const auto bytes = static_cast<size_t>(columns * box.map.elementBytes);
    if (bytes == 0) continue;
    const std::byte* const line = lines.data() + static_cast<size_t>(r) * kAreaRow;
    std::byte* const to = box.rowIn(r);
    if (adds) {
      for (int c = 0; c < columns; ++c) {
        float old, more;
        std::memcpy(&old, to + 4 * c, 4);
        std::memcpy(&more, line + 4 * c, 4);
        old += more;
        std::memcpy(to + 4 * c, &old, 4);
      }
    } else {
      std::memcpy(to, line, bytes);
    }
    announceWrite(to, bytes);
    forgetWriters(machine(), to, bytes);
  }
}

// Posts a load that fills `bytes` at `to` by fill().
void postLoad(std::byte* to, size_t bytes, Barrier* barrier, const std::function<void()>& fill) {
  Machine& m = machine();
  BarrierState& state = findState(m, barrier);
  std::memset(to, static_cast<int>(kNan), bytes);
  forgetWriters(m, to, bytes);
  const Actor actor;
  m.post(nullptr, [&m, &state, actor, to, bytes, fill] {
    actor.act([&] {
      fill();
      state.order[state.phase % 2].release();
      m.end.release();
    });
    forgetWriters(m, to, bytes);
    landBytes(state, static_cast<int64_t>(bytes));
  });
  m.yield();
}

// Posts a store: take() reads shared memory, give() writes.
void postStore(const std::byte* from, size_t bytes, const std::function<std::vector<std::byte>()>& take,
               const std::function<void(const std::vector<std::byte>&)>& give) {
  Machine& m = machine();
  const auto store = std::make_shared<Store>();
  const auto taken = std::make_shared<std::vector<std::byte>>();
  m.self().stores.push_back(store);
  const Actor actor;
  m.post(nullptr, [&m, store, actor, taken, take, from, bytes] {
    checkFenced(m, from, bytes, "copy");
    actor.act([&] {
      *taken = take();
      store->read->release();
      machine().end.release();
    });
    store->isRead = true;
  });
  m.post([store] { return store->isRead; },
         [store, actor, taken, give] {
           actor.act([&] {
             give(*taken);
             store->written->release();
             machine().end.release();
           });
           store->isWritten = true;
         });
  m.yield();
}

void checkRun(Machine& m, const std::byte* shared, const std::byte* global, uint32_t bytes) {
  if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0)
    m.fail(fmt::format("copies {} bytes, expected multiples of 16 at multiples of 16", bytes));
  checkPlace(m, shared, bytes, 16);
  m.checkAccess(global, bytes);
}

Box makeBox(Machine& m, const TensorMap* map, int column, int row, int outer) {
  const Box box{fencedMapFrom(m, map), column, row, outer};
  for (int r = 0; r < box.map.boxRows; ++r)
    if (const int columns = box.countColumns(r); columns > 0)
      m.checkAccess(box.rowIn(r), static_cast<size_t>(columns * box.map.elementBytes));
  return box;
}

}  // namespace

void checkFenced(Machine& m, const std::byte* shared, size_t bytes, const char* what, uint64_t seen) {
  for (size_t at = 0; at < bytes; at += kGranule) {
    const Written* const written = m.writtenAt(shared + at);
    if (!written || written->thread == 0 || written->epoch <= seen) continue;
    const Thread& writer = *m.threads[static_cast<size_t>(written->thread - 1)];
    if (writer.proxyFences == written->proxyFences)
      return m.note(
          fmt::format("{} a {} reads what it stored without fenceProxyAsync()", m.where(writer), what));
  }
}

void copyPart(std::byte* to, const std::byte* from, bool isThere) {
  const Quiet quiet;
  Machine& m = machine();
  if (isThere)
    checkRun(m, to, from, 16);
  else
    checkPlace(m, to, 16, 16);
  std::memset(to, static_cast<int>(kNan), 16);
  m.self().parts.push_back({to, isThere ? from : nullptr});
  m.yield();
}

void holdForParts(Barrier* barrier) {
  const Quiet quiet;
  Machine& m = machine();
  BarrierState& state = findState(m, barrier);
  ++state.pending;
  const Actor actor;
  m.post(nullptr, [&m, &state, actor, thread = m.running, parts = std::move(m.self().parts)] {
    actor.act([&] {
      for (const Part& part : parts) {
        if (part.from != nullptr) announceRead(part.from, 16);
        const std::byte zeros[16] = {};
        std::memcpy(part.to, part.from == nullptr ? zeros : part.from, 16);
        announceWrite(part.to, 16);
        const Machine::RecordPlace place = m.findRecord(part.to);
        place.records->at(place.offset) = {thread + 1, m.threads[static_cast<size_t>(thread)]->proxyFences,
                                           ++m.epoch};
      }
      state.order[state.phase % 2].release();
      m.end.release();
    });
    endHold(state);
  });
  m.self().parts.clear();
  m.yield();
}

void copyBox(std::byte* to, const TensorMap* from, Barrier* barrier, int column, int row, int outer,
             int rows) {
  const Quiet quiet;
  Machine& m = machine();
  const Box box = makeBox(m, from, column, row, outer);
  if (rows < 0 || rows > box.map.boxRows)
    m.fail(fmt::format("copyBox(): {} rows, expected 0 to {}", rows, box.map.boxRows));
  checkPlace(m, to, box.bytes(), box.map.boxRows == 1 ? kAreaRow : 8 * kAreaRow);
  for (int r = 0; r < rows; ++r)
    checkKnown(m, box.rowIn(r), static_cast<size_t>(box.countColumns(r) * box.map.elementBytes));
  const uint32_t first = static_cast<uint32_t>(to - m.block().shared) / kAreaRow % 8;
  postLoad(to, box.bytes(), barrier, [box, to, first, rows] { land(box, to, first, rows); });
}

void storeBox(const TensorMap* to, const std::byte* from, int column, int row, int outer, bool adds) {
  const Quiet quiet;
  Machine& m = machine();
  const Box box = makeBox(m, to, column, row, outer);
  if (adds && box.map.elementBytes != 4) m.fail("addBox() of a matrix that is not fp32");
  checkPlace(m, from, box.bytes(), 1024);
  postStore(
      from, box.bytes(), [box, from] { return gatherLines(box, from); },
      [box, adds](const std::vector<std::byte>& lines) { writeLines(box, lines, adds); });
}

void fenceMap(const TensorMap* map) {
  const Quiet quiet;
  Machine& m = machine();
  mapFrom(m, map);
  m.block().fencedMaps.insert(map);
}

void copyBytes(std::byte* to, const std::byte* from, uint32_t bytes, Barrier* barrier) {
  const Quiet quiet;
  Machine& m = machine();
  checkRun(m, to, from, bytes);
  checkKnown(m, from, bytes);
  postLoad(to, bytes, barrier, [to, from, bytes] {
    std::memcpy(to, from, bytes);
    announceRead(from, bytes);
    announceWrite(to, bytes);
  });
}

void storeBytes(std::byte* to, const std::byte* from, uint32_t bytes) {
  const Quiet quiet;
  checkRun(machine(), from, to, bytes);
  postStore(
      from, bytes,
      [from, bytes] {
        announceRead(from, bytes);
        return std::vector<std::byte>(from, from + bytes);
      },
      [to, bytes](const std::vector<std::byte>& taken) {
        std::memcpy(to, taken.data(), bytes);
        announceWrite(to, bytes);
        forgetWriters(machine(), to, bytes);
      });
}

void groupStores() {
  const Quiet quiet;
  Thread& own = machine().self();
  own.storeGroups.push_back(std::move(own.stores));
  own.stores.clear();
  machine().yield();
}

void waitStores(int groups, bool onlyRead) {
  const Quiet quiet;
  Machine& m = machine();
  Thread& own = m.self();
  const size_t done = own.storeGroups.size() - std::min(own.storeGroups.size(), static_cast<size_t>(groups));
  const std::function<bool()> isOver = [&own, done, onlyRead] {
    for (size_t g = 0; g < done; ++g)
      for (const auto& store : own.storeGroups[g])
        if (!(onlyRead ? store->isRead : store->isWritten)) return false;
    return true;
  };
  m.wait(onlyRead ? "its stores to have read" : "its stores", {.function = &isOver});
  for (size_t g = 0; g < done; ++g)
    for (const auto& store : own.storeGroups[g]) (onlyRead ? store->read : store->written)->acquire();
  if (!onlyRead)
    own.storeGroups.erase(own.storeGroups.begin(), own.storeGroups.begin() + static_cast<ptrdiff_t>(done));
}

TensorMap makeMap(const void* data, int elementBytes, int columns, int rows, int outers, int64_t rowPitch,
                  int64_t outerPitch, int boxColumns, int boxRows) {
  const Map map{static_cast<const std::byte*>(data),
                rowPitch,
                outerPitch,
                elementBytes,
                columns,
                rows,
                outers,
                boxColumns,
                boxRows,
                kMark};
  const bool fits = (elementBytes == 2 || elementBytes == 4) && boxColumns * elementBytes == int{kAreaRow} &&
                    boxRows >= 1 && boxRows <= 256 && rowPitch % 16 == 0 && outerPitch % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(data) % 16 == 0;
  TensorMap result{};
  if (fits) std::memcpy(&result, &map, sizeof(map));  // else one that every copy refuses
  return result;
}

TensorMap makeMap(const MappedMatrix& matrix) {
  return makeMap(matrix.data, matrix.elementBytes, static_cast<int>(matrix.columns),
                 static_cast<int>(matrix.rows), static_cast<int>(matrix.outers), matrix.rowPitch,
                 matrix.outerPitch, matrix.boxColumns, matrix.boxRows);
}

}  // namespace sluice::gpu::model
