#include "compiler/target/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/target/figures.h"
#include "runtime/base/machine.h"
#include "runtime/base/one_line.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kMaxTargetBytes = 1 << 20;

void readUnified(Figures& figures, Target& target) {
  figures.number(figures.value("cores"), "cores", 1, 4096, target.cores);
  figures.number(figures.value("slot_rows"), "slot_rows", 16, 1 << 16, target.slotRows);
  if (target.slotRows % 16 != 0) figures.fail("slot_rows", "a multiple of 16");
  figures.number(figures.value("token_slot"), "token_slot", 1, 1 << 16, target.tokenSlot);
  figures.number(figures.value("gmm_tile_columns"), "gmm_tile_columns", 1, 1 << 20, target.tiles.gmmColumns);
  const Json& tile = figures.value("weight_grad_tile");
  if (tile.is_array() && tile.size() == 2) {
    figures.number(tile[0], "weight_grad_tile", 1, 1 << 20, target.tiles.weightGradRows);
    figures.number(tile[1], "weight_grad_tile", 1, 1 << 20, target.tiles.weightGradColumns);
  } else {
    figures.fail("weight_grad_tile", "an array of 2 numbers");
  }
  const Json& windows = figures.value("windows");
  const auto window = [&](const char* name, int32_t& out) {
    figures.number(Figures::member(windows, name), fmt::format("windows.{}", name), 1, 1 << 16, out);
  };
  window("tokens", target.windows.tokens);
  window("rows", target.windows.rows);
  window("sends", target.windows.sends);
  window("returns", target.windows.returns);
  window("experts", target.windows.experts);
  figures.allowOnly(windows, "windows", {"tokens", "rows", "sends", "returns", "experts"});
}

void readSeparate(Figures& figures, Target& target) {
  figures.number(figures.value("cube_cores"), "cube_cores", 1, 4096, target.cubeCores);
  figures.number(figures.value("vector_cores"), "vector_cores", 1, 4096, target.vectorCores);
  if (figures.has("communication_cores"))
    figures.number(figures.value("communication_cores"), "communication_cores", 0, target.vectorCores - 1,
                   target.communicationCores);
}

// Wide enough for any device, narrow enough that quotients of two figures are finite.
constexpr double kLeastRate = 1e3, kMaxRate = 1e18;  // per second
constexpr double kMaxHalf = 1e6;                     // rows, columns, elements
constexpr double kMaxBytes = 1e15;
constexpr double kMaxSeconds = 1;

ProductRate product(Figures& figures, const Json& matrix, const char* name) {
  ProductRate rate;
  figures.reals(Figures::member(matrix, name), fmt::format("matrix.{}", name),
                {{"flops", kLeastRate, kMaxRate, rate.flops},
                 {"half_rows", 0, kMaxHalf, rate.halfRows},
                 {"half_columns", 0, kMaxHalf, rate.halfColumns},
                 {"half_sum", 0, kMaxHalf, rate.halfSum}});
  return rate;
}

void readMatrix(Figures& figures, MatrixRates& matrix) {
  const Json& value = figures.value("matrix");
  figures.reals(value, "matrix",
                {{"row_unit", 1, 4096, matrix.rowUnit},
                 {"column_unit", 1, 4096, matrix.columnUnit},
                 {"row_block", 0, kMaxHalf, matrix.rowBlock},
                 {"sum_block", 0, kMaxHalf, matrix.sumBlock}},
                {"gmm", "gmm_transposed", "weight_grad"});
  matrix.gmm = product(figures, value, "gmm");
  matrix.gmmTransposed = product(figures, value, "gmm_transposed");
  matrix.weightGrad = product(figures, value, "weight_grad");
}

// The rates of a device model file, if it has any: then all of matrix, vector, memory, caches, link and task
// are required. They are the last fields of a file to be read: fails if it has others that nobody read.
std::optional<Rates> readRates(Figures& figures) {
  bool any = false;
  for (const char* group : {"matrix", "vector", "memory", "caches", "link", "task"})
    any |= figures.has(group);
  figures.finish();
  if (!any) return std::nullopt;
  Rates rates;
  readMatrix(figures, rates.matrix);
  VectorRates& vector = rates.vector;
  figures.reals(figures.value("vector"), "vector",
                {{"activation", kLeastRate, kMaxRate, vector.activation},
                 {"activation_grad", kLeastRate, kMaxRate, vector.activationGrad},
                 {"sum", kLeastRate, kMaxRate, vector.sum},
                 {"copy", kLeastRate, kMaxRate, vector.copy},
                 {"round", kLeastRate, kMaxRate, vector.round}});
  MemoryRates& memory = rates.memory;
  figures.reals(figures.value("memory"), "memory",
                {{"core_read", kLeastRate, kMaxRate, memory.coreRead},
                 {"core_write", kLeastRate, kMaxRate, memory.coreWrite},
                 {"shared_read", kLeastRate, kMaxRate, memory.sharedRead},
                 {"shared_write", kLeastRate, kMaxRate, memory.sharedWrite},
                 {"half_run", 0, kMaxHalf, memory.halfRun},
                 {"overlap", 0, 1, memory.overlap},
                 {"write_overlap", 0, 1, memory.writeOverlap}});
  figures.reals(figures.value("caches"), "caches",
                {{"core", 1, kMaxBytes, rates.caches.core},
                 {"core_spill", kLeastRate, kMaxRate, rates.caches.coreSpill},
                 {"shared", 0, kMaxBytes, rates.caches.shared}});
  figures.reals(figures.value("link"), "link",
                {{"bandwidth", kLeastRate, kMaxRate, rates.link.bandwidth},
                 {"latency", 0, kMaxSeconds, rates.link.latency}});
  figures.real(figures.value("task"), "task", 0, kMaxSeconds, rates.task);
  return rates;
}

Expected<Target> makeTarget(const std::string& path, const Json& root) {
  Figures figures(path, root);
  Target target;
  target.name = figures.text("name");
  if (figures.has("processors")) target.processors = figures.texts(figures.value("processors"), "processors");
  figures.has("doc");
  const Json& kind = figures.value("core_kind");
  if (kind == "separate")
    readSeparate(figures, target);
  else if (kind == "unified")
    readUnified(figures, target);
  else
    figures.fail("core_kind", "\"unified\" or \"separate\"");
  target.rates = readRates(figures);
  if (!figures.error().empty()) return Error{oneLine(figures.error())};
  return target;
}

// `path` is used in messages.
Expected<Target> parseTarget(const std::string& path, std::string_view text) {
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return Error{fmt::format("{}: error: is not a JSON object", path)};
  return makeTarget(path, root);
}

Expected<Target> readTarget(const std::string& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed) || fs::file_size(path, failed) > kMaxTargetBytes || failed)
    return Error{fmt::format("{}: error: no such target file, or not a file of at most 1 MiB", path)};
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) return Error{fmt::format("{}: error: cannot be read", path)};
  return parseTarget(path, content.str());
}

std::vector<std::string> available(std::span<const std::string> folders) {
  std::vector<std::string> names;
  for (const ShippedTarget& shipped : shippedTargets()) names.emplace_back(shipped.name);
  for (const std::string& folder : folders) {
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Expected<Target> loadTarget(const std::string& nameOrPath, std::span<const std::string> folders) {
  if (nameOrPath == "native") return targetFor(processorModel(), folders);
  if (nameOrPath.ends_with(".json")) return readTarget(nameOrPath);
  if (nameOrPath.find('/') == std::string::npos)
    for (const std::string& folder : folders) {
      const std::string path = fmt::format("{}/{}.json", folder, nameOrPath);
      std::error_code failed;
      if (fs::exists(path, failed)) return readTarget(path);
    }
  for (const ShippedTarget& shipped : shippedTargets())
    if (shipped.name == nameOrPath)
      return parseTarget(fmt::format("shipped {}.json", nameOrPath), shipped.text);
  return Error{fmt::format("error: unknown target '{}', available: {}, or native", nameOrPath,
                           fmt::join(available(folders), ", "))};
}

Expected<Target> targetFor(const std::string& processor, std::span<const std::string> folders) {
  for (const std::string& name : available(folders)) {
    Expected<Target> target = loadTarget(name, folders);
    const auto isOf = [&](const std::string& model) { return (processor + " ").starts_with(model + " "); };
    if (!target || std::ranges::any_of(target->processors, isOf)) return target;
  }
  return loadTarget("cpu", folders);
}

std::vector<std::string> targetFolders(const std::string& argv0) {
  if (const char* set = std::getenv("SLUICE_TARGETS"); set != nullptr && *set != '\0') return {set};
  std::vector<fs::path> executables = {argv0};
  std::error_code failed;
  if (fs::path resolved = fs::read_symlink("/proc/self/exe", failed); !failed)
    executables.push_back(resolved);
  std::vector<std::string> folders;
  for (const fs::path& executable : executables) {
    if (!executable.has_parent_path()) continue;  // found on the PATH
    folders.push_back(executable.string() + ".runfiles/sluice/targets");
    folders.push_back((executable.parent_path() / "targets").string());
    folders.push_back((executable.parent_path() / ".." / "targets").string());
    // the place where tools/install puts them
    folders.push_back((executable.parent_path() / ".." / "share" / "sluice" / "targets").string());
  }
  return folders;
}

}  // namespace sluice
