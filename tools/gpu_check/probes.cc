#include "tools/gpu_check/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/clock.h"

namespace sluice::tools {
namespace {

using gpu::Probe;

constexpr int kBoxRows = 8;

struct Position {
  int column, row, outer;
  int rows;  // that count
};

// A matrix [outers, rows, columns] with gaps after rows and outers, and boxes of 8 rows of 128 bytes.
template <class T>
struct Matrix {
  static constexpr int kBoxColumns = 128 / int{sizeof(T)};
  static constexpr int kOuters = 2, kRows = 5, kColumns = kBoxColumns + 6, kPitch = kBoxColumns + 8;
  static constexpr int kOuterPitch = (kRows + 1) * kPitch;

  std::vector<T> values;

  static bool has(int outer, int row, int column) {
    return outer < kOuters && row < kRows && column < kColumns;
  }
  static size_t at(int outer, int row, int column) {
    return static_cast<size_t>(outer * kOuterPitch + row * kPitch + column);
  }
  static gpu::TensorMap makeMap(ProbeRun& run, const T* data, int boxRows = kBoxRows) {
    return run.makeMap({.data = reinterpret_cast<const std::byte*>(data),
                        .elementBytes = int{sizeof(T)},
                        .columns = kColumns,
                        .rows = kRows,
                        .outers = kOuters,
                        .rowPitch = kPitch * int64_t{sizeof(T)},
                        .outerPitch = kOuterPitch * int64_t{sizeof(T)},
                        .boxColumns = kBoxColumns,
                        .boxRows = boxRows});
  }
};

// Numbers of which none is 0 or NaN, as T or as its bits.
template <class T>
std::vector<T> numbers(size_t count, int first) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i + static_cast<size_t>(first));
  return values;
}

std::string describePosition(Position at, int row, int column) {
  return fmt::format("box at column {}, row {}, matrix {}: its row {}, column {}", at.column, at.row,
                     at.outer, row, column);
}

template <class T>
Status checkBox(const ProbeRun& run, const std::vector<T>& values, const std::vector<T>& found, Position at) {
  using M = Matrix<T>;
  for (int row = 0; row < kBoxRows; ++row)
    for (int column = 0; column < M::kBoxColumns; ++column) {
      T expected = 0;
      if (M::has(at.outer, at.row + row, at.column + column)) {
        expected = values[M::at(at.outer, at.row + row, at.column + column)];
        // a GPU reads them as all others; the model says that nobody may rely on it
        if (row >= at.rows && run.machine().isModel) expected = static_cast<T>(~T{0});
      }
      const T value = found[static_cast<size_t>(row * M::kBoxColumns + column)];
      if (value != expected)
        return Error{fmt::format("{}: found {:#x}, expected {:#x}", describePosition(at, row, column), value,
                                 expected)};
    }
  return {};
}

// T: uint16_t, bits of bf16, or uint32_t, of fp32.
template <class T>
Status copyBoxes(ProbeRun& run, std::span<const Position> positions) {
  using M = Matrix<T>;
  const std::vector<T> values = numbers<T>(M::kOuters * M::kOuterPitch, 1);
  const std::vector<T> unwritten(kBoxRows * M::kBoxColumns, T{0x5a5a});
  const gpu::TensorMap map = M::makeMap(run, run.upload(values));
  for (const Position at : positions) {
    T* const out = run.upload(unwritten);
    gpu::ProbeLaunch launch{.probe = Probe::kCopyBox};
    launch.arguments.maps[0] = map;
    launch.arguments.out = reinterpret_cast<std::byte*>(out);
    launch.arguments.column = at.column, launch.arguments.row = at.row;
    launch.arguments.outer = at.outer, launch.arguments.rows = at.rows;
    run.launch(launch);
    if (Status ok = checkBox(run, values, run.download(out, unwritten.size()), at); !ok) return ok;
  }
  return run.status();
}

// Rows in any order, some of them outside of the matrix, where a box of them all would lie: by boxes of one
// row, or by the threads of the block.
template <class T>
Status gatherRows(ProbeRun& run, Position at, Probe probe) {
  using M = Matrix<T>;
  const std::vector<T> values = numbers<T>(M::kOuters * M::kOuterPitch, 1);
  const std::vector<int32_t> order = {4, 0, 5, 2, 2, 1, 9, 3};
  // a thread does not know where the matrix ends
  std::vector<int32_t> inside = order;
  for (int32_t& row : inside) row = row < M::kRows ? row : -1;
  T* const out = run.upload(std::vector<T>(kBoxRows * M::kBoxColumns, T{0x5a5a}));
  const T* const data = run.upload(values);
  gpu::ProbeLaunch launch{.probe = probe};
  launch.arguments.maps[0] = M::makeMap(run, data, 1);
  launch.arguments.in =
      reinterpret_cast<const std::byte*>(run.upload(probe == Probe::kRowBoxes ? order : inside));
  launch.arguments.data = reinterpret_cast<const std::byte*>(data + M::at(at.outer, 0, at.column));
  launch.arguments.pitch = M::kPitch * int64_t{sizeof(T)};
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  launch.arguments.column = at.column, launch.arguments.outer = at.outer;
  run.launch(launch);
  const std::vector<T> found = run.download(out, kBoxRows * M::kBoxColumns);
  for (int row = 0; row < kBoxRows; ++row)
    for (int column = 0; column < M::kBoxColumns; ++column) {
      const int from = order[static_cast<size_t>(row)];
      const T expected = M::has(at.outer, from, at.column + column)
                             ? values[M::at(at.outer, from, at.column + column)]
                             : T{0};
      const T value = found[static_cast<size_t>(row * M::kBoxColumns + column)];
      if (value != expected)
        return Error{fmt::format("{}: found {:#x}, expected {:#x}", describePosition(at, row, column), value,
                                 expected)};
    }
  return run.status();
}

// T: uint16_t, stored only, or float.
template <class T>
Status storeBoxes(ProbeRun& run, std::span<const Position> positions, bool adds) {
  using M = Matrix<T>;
  const std::vector<T> before = numbers<T>(M::kOuters * M::kOuterPitch, 1);
  const std::vector<T> box = numbers<T>(kBoxRows * M::kBoxColumns, 5000);
  for (const Position at : positions) {
    T* const matrix = run.upload(before);
    gpu::ProbeLaunch launch{.probe = Probe::kStoreBox};
    launch.arguments.maps[0] = M::makeMap(run, matrix);
    launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(box));
    launch.arguments.column = at.column, launch.arguments.row = at.row, launch.arguments.outer = at.outer;
    launch.arguments.number = adds ? 1 : 0;
    run.launch(launch);
    std::vector<T> expected = before;
    for (int row = 0; row < kBoxRows; ++row)
      for (int column = 0; column < M::kBoxColumns; ++column) {
        if (!M::has(at.outer, at.row + row, at.column + column)) continue;
        T& to = expected[M::at(at.outer, at.row + row, at.column + column)];
        const T value = box[static_cast<size_t>(row * M::kBoxColumns + column)];
        to = static_cast<T>(adds ? to + value : value);
      }
    const std::vector<T> found = run.download(matrix, before.size());
    const auto [wrong, right] = std::ranges::mismatch(found, expected);
    if (wrong != found.end())
      return Error{
          fmt::format("box at column {}, row {}, matrix {}: element {} of memory: found {}, expected {}",
                      at.column, at.row, at.outer, wrong - found.begin(), *wrong, *right)};
  }
  return run.status();
}

// Over all edges, beside the matrix, and in the second of two matrices, whose neighbour is not read.
constexpr Position kEdges[] = {{0, 0, 0, 5},  {64, 1, 0, 3}, {64, 4, 1, 1}, {0, 3, 0, 1},
                               {32, 2, 1, 2}, {0, 5, 0, 0},  {96, 0, 1, 0}, {0, 0, 2, 0}};
constexpr Position kAnyColumn[] = {{1, 0, 0, 5},  {3, 1, 0, 4},  {8, 0, 1, 5},
                                   {31, 0, 1, 4}, {35, 2, 0, 3}, {69, 0, 0, 5}};

Expected<std::string> textIfOk(const Status& status, const char* text) {
  if (!status) return status.error();
  return std::string(text);
}

Expected<std::string> probeEdges(ProbeRun& run) {
  Status ok = copyBoxes<uint16_t>(run, kEdges);
  if (ok) ok = copyBoxes<uint32_t>(run, kEdges);
  return textIfOk(ok, "0 outside of the matrix, bf16 and fp32");
}

Expected<std::string> probeRowBoxes(ProbeRun& run) {
  Status ok = gatherRows<uint16_t>(run, {0, 0, 1, 0}, Probe::kRowBoxes);
  if (ok) ok = gatherRows<uint16_t>(run, {32, 0, 0, 0}, Probe::kRowBoxes);
  if (ok) ok = gatherRows<uint32_t>(run, {0, 0, 1, 0}, Probe::kRowBoxes);
  return textIfOk(ok, "swizzled by where they lie, 0 outside of the matrix, bf16 and fp32");
}

Expected<std::string> probeRowParts(ProbeRun& run) {
  Status ok = gatherRows<uint16_t>(run, {0, 0, 1, 0}, Probe::kRowParts);
  if (ok) ok = gatherRows<uint32_t>(run, {0, 0, 0, 0}, Probe::kRowParts);
  return textIfOk(ok, "where they are stored, zeros where there is no row");
}

Expected<std::string> probeStores(ProbeRun& run) {
  Status ok = storeBoxes<uint16_t>(run, kEdges, false);
  if (ok) ok = storeBoxes<float>(run, kEdges, false);
  return textIfOk(ok, "nothing outside of the matrix is written, bf16 and fp32");
}

Expected<std::string> probeAdditions(ProbeRun& run) {
  return textIfOk(storeBoxes<float>(run, kEdges, true), "each element once, none outside of the matrix");
}

Expected<std::string> probeAnyColumn(ProbeRun& run) {
  Status ok = copyBoxes<uint16_t>(run, kAnyColumn);
  if (ok) ok = copyBoxes<uint32_t>(run, kAnyColumn);
  if (ok) ok = storeBoxes<uint16_t>(run, kAnyColumn, false);
  if (ok) ok = storeBoxes<float>(run, kAnyColumn, true);
  return textIfOk(ok, "loads, stores and additions");
}

Expected<std::string> probeSignals(ProbeRun& run) {
  constexpr int kThreads = 128;
  uint32_t* const areas = run.upload(std::vector<uint32_t>(gpu::kSignalWays * gpu::kSignalWords));
  uint32_t* const out = run.upload(std::vector<uint32_t>(kThreads * gpu::kSignalWays, 1));
  gpu::ProbeLaunch launch{.probe = Probe::kSignal};
  launch.arguments.maps[0] =
      run.makeMap({.data = reinterpret_cast<const std::byte*>(areas + gpu::kMappedWay * gpu::kSignalWords),
                   .elementBytes = 4,
                   .columns = 32,
                   .rows = kBoxRows,
                   .rowPitch = 128,
                   .outerPitch = kBoxRows * 128,
                   .boxColumns = 32,
                   .boxRows = kBoxRows});
  launch.arguments.in = reinterpret_cast<const std::byte*>(areas);
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  uint64_t* const counters = run.upload(std::vector<uint64_t>(16));
  launch.arguments.counters = counters;
  launch.arguments.number = run.machine().signals;
  run.launch(launch);
  std::array<uint64_t, gpu::kSignalWays> wrong{};
  const std::vector<uint32_t> found = run.download(out, kThreads * gpu::kSignalWays);
  for (size_t i = 0; i < found.size(); ++i) wrong[i % wrong.size()] += found[i];
  if (std::ranges::count(wrong, 0U) != gpu::kSignalWays)
    return Error{
        fmt::format("wrong words after a signal: stored, then loaded {}, copied {}, copied as a box {}; "
                    "copied out, then loaded {}, copied {}",
                    wrong[0], wrong[1], wrong[2], wrong[3], wrong[4])};
  const std::vector<uint64_t> times = run.download(counters, 16);
  const auto expected = static_cast<uint64_t>(run.machine().signals);
  if (times[0] != expected || times[8] != expected)
    return Error{fmt::format("signalled {} and {} times, expected {}", times[0], times[8], expected)};
  return fmt::format("{} times, stored or copied out, then loaded or copied", run.machine().signals);
}

// Launches a probe that writes so many words, which begin as 9.
std::vector<uint32_t> readProbeWords(ProbeRun& run, Probe probe, size_t count) {
  uint32_t* const out = run.upload(std::vector<uint32_t>(count, 9));
  gpu::ProbeLaunch launch{.probe = probe};
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  run.launch(launch);
  return run.download(out, count);
}

Expected<std::string> probeParity(ProbeRun& run) {
  const std::vector<uint32_t> found = readProbeWords(run, Probe::kParity, 4), expected{1, 0, 0, 1};
  if (found != expected)
    return Error{fmt::format("found {}, expected {}", fmt::join(found, ", "), fmt::join(expected, ", "))};
  return std::string("0 and 1 in turn, from one of parity 1 that has ended on");
}

Expected<std::string> probeLanes(ProbeRun& run) {
  const std::vector<uint32_t> found = readProbeWords(run, Probe::kLanes, 384);
  for (uint32_t thread = 0; thread < found.size(); ++thread) {
    const uint32_t expected = thread / 32 * 32 + 31 - thread % 32;
    if (found[thread] != expected)
      return Error{fmt::format("thread {}: found {}, expected {}", thread, found[thread], expected)};
  }
  return std::string("ballot, shuffle, 40 and 232 registers of warpgroups");
}

Expected<std::string> probeBytes(ProbeRun& run) {
  constexpr size_t kBytes = 4096;
  constexpr struct {
    int bytes, shared, in, out;
  } kCopies[] = {{16, 1024, 0, 16}, {48, 1040, 16, 0}, {1008, 1072, 32, 1040}, {2048, 2048, 2032, 2048}};
  for (const auto& copy : kCopies) {
    const std::vector<uint8_t> from = numbers<uint8_t>(kBytes, 1), before(kBytes, 0xee);
    uint8_t* const out = run.upload(before);
    gpu::ProbeLaunch launch{.probe = Probe::kBytes};
    launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(from)) + copy.in;
    launch.arguments.out = reinterpret_cast<std::byte*>(out + copy.out);
    launch.arguments.number = copy.bytes;
    launch.arguments.column = copy.shared;
    run.launch(launch);
    std::vector<uint8_t> expected = before;
    std::copy_n(from.begin() + copy.in, copy.bytes, expected.begin() + copy.out);
    const std::vector<uint8_t> found = run.download(out, kBytes);
    const auto [wrong, right] = std::ranges::mismatch(found, expected);
    if (wrong != found.end())
      return Error{fmt::format("{} bytes from {} to {}: byte {}: found {}, expected {}", copy.bytes, copy.in,
                               copy.out, wrong - found.begin(), *wrong, *right)};
  }
  return std::string("16 to 2048, none beside them");
}

// Maps that the host writes to the same memory, so many bytes after a multiple of 128, one after the other,
// of which each launch uses the last. What a launch without the fence finds on a GPU is told, but no failure.
Expected<std::string> probeUploadedMaps(ProbeRun& run, size_t offset) {
  using M = Matrix<uint16_t>;
  constexpr Position kAt{0, 0, 0, 5};
  constexpr int kLaunches = 8;
  const std::vector<uint16_t> values[] = {numbers<uint16_t>(M::kOuters * M::kOuterPitch, 1),
                                          numbers<uint16_t>(M::kOuters * M::kOuterPitch, 3000)};
  const gpu::TensorMap maps[] = {M::makeMap(run, run.upload(values[0])),
                                 M::makeMap(run, run.upload(values[1]))};
  int stale = 0;
  for (const bool fenced : {true, false}) {
    if (!fenced && run.machine().isModel) return std::string("right with a fence");
    std::byte* const uploaded = run.upload(std::vector<std::byte>(offset + sizeof(gpu::TensorMap))) + offset;
    for (int i = 0; i < kLaunches; ++i) {
      uint16_t* const out = run.upload(std::vector<uint16_t>(kBoxRows * M::kBoxColumns, 0x5a5a));
      const auto* const bytes = reinterpret_cast<const std::byte*>(&maps[i % 2]);
      run.overwrite(uploaded, std::vector<std::byte>(bytes, bytes + sizeof(gpu::TensorMap)));
      gpu::ProbeLaunch launch{.probe = Probe::kUploadedMap};
      launch.arguments.uploaded = reinterpret_cast<const gpu::TensorMap*>(uploaded);
      launch.arguments.out = reinterpret_cast<std::byte*>(out);
      launch.arguments.rows = kAt.rows;
      launch.arguments.number = fenced ? 1 : 0;
      run.launch(launch);
      const Status ok = checkBox(run, values[i % 2], run.download(out, kBoxRows * M::kBoxColumns), kAt);
      if (!ok && fenced) return Error{fmt::format("with a fence: {}", ok.error().message)};
      stale += ok ? 0 : 1;
    }
  }
  return fmt::format("right with a fence; without one {} of {} launches used another map", stale, kLaunches);
}

template <size_t Offset>
Expected<std::string> probeUploadedMapsAt(ProbeRun& run) {
  return probeUploadedMaps(run, Offset);
}

template <int Columns>
Expected<std::string> probeProductsWith(ProbeRun& run) {
  return probeProducts(run, Columns);
}

// As many blocks as the kernel has, with as many threads and as much shared memory.
Expected<std::string> probeLaunch(ProbeRun& run) {
  const auto blocks = static_cast<size_t>(run.blocks());
  uint32_t* const out = run.upload(std::vector<uint32_t>(2 * blocks));
  gpu::ProbeLaunch launch{.probe = Probe::kLaunch, .blocks = run.blocks()};
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  run.launch(launch);
  const std::vector<uint32_t> found = run.download(out, 2 * blocks);
  for (size_t block = 0; block < blocks; ++block) {
    if (found[2 * block] != 384)
      return Error{fmt::format("block {}: found {} threads, expected 384", block, found[2 * block])};
    if (found[2 * block + 1] != 0)
      return Error{fmt::format("block {}: shared memory begins {} bytes after a multiple of 1024, expected 0",
                               block, found[2 * block + 1])};
  }
  return fmt::format("{} blocks of 384 threads, with shared memory from a multiple of 1024 bytes on", blocks);
}

constexpr NamedProbe kProbes[] = {
    {"launch as large as the kernel's", probeLaunch, true},
    {"lanes and registers", probeLanes, true},
    {"phases of a barrier", probeParity},
    {"copies of bytes", probeBytes},
    {"edges of boxes", probeEdges},
    {"boxes of one row", probeRowBoxes},
    {"rows by threads", probeRowParts},
    {"stores of boxes", probeStores},
    {"additions of boxes", probeAdditions},
    {"products of 64 columns", probeProductsWith<64>},
    {"products of 128 columns", probeProductsWith<128>},
    {"products of 192 columns", probeProductsWith<192>},
    {"products of 256 columns", probeProductsWith<256>},
    {"signals across blocks", probeSignals},
    {"rounding to bf16", probeRounding},
    {"exponential", probeExponential},
    {"reciprocal", probeReciprocal},
    {"subnormal numbers in products", probeSubnormalProducts},
    {"subnormal numbers in additions of boxes", probeSubnormalAdditions},
    {"boxes at any column", probeAnyColumn},
    {"maps in memory", probeUploadedMapsAt<0>},
    {"maps in memory after 64 bytes", probeUploadedMapsAt<64>, false, true},
};

}  // namespace

std::span<const NamedProbe> allProbes() { return kProbes; }

Expected<std::string> runProbe(const NamedProbe& probe, GpuBackend& backend, const ProbeMachine& machine) {
  ProbeRun run(backend, machine);
  Expected<std::string> text = probe.body(run);
  return run.status() ? text : run.status().error();
}

bool runProbes(GpuBackend& backend, const ProbeMachine& machine, const ReportResult& report) {
  bool passed = true;
  for (const NamedProbe& probe : kProbes) {
    if (!machine.only.empty() && machine.only != probe.name) continue;
    if (probe.isForGpus && machine.isModel) continue;
    const int64_t begin = monotonicNanoseconds();
    const Expected<std::string> text = runProbe(probe, backend, machine);
    const double seconds = static_cast<double>(monotonicNanoseconds() - begin) * 1e-9;
    report({fmt::format("probe: {}", probe.name), text.ok(), text ? *text : text.error().message, seconds});
    passed &= text.ok();
  }
  return passed;
}

}  // namespace sluice::tools
