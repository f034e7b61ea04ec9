#include "compiler/target/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kMaxFileBytes = 1 << 20;

// Takes figures out of one file; after the first error the rest are left alone.
class Reader {
 public:
  Reader(std::string path, const Json& root) : path_(std::move(path)), root_(root) {}

  Expected<Target> run() {
    Target target;
    target.name = text(root_, "name");
    if (hasSeparateCores()) {
      number(value("cube_cores"), "cube_cores", 1, 4096, target.cubeCores);
      number(value("vector_cores"), "vector_cores", 1, 4096, target.vectorCores);
    } else {
      unified(target);
    }
    if (!error_.empty()) return Error{error_};
    return target;
  }

 private:
  void unified(Target& target) {
    number(value("cores"), "cores", 1, 4096, target.cores);
    number(value("slot_rows"), "slot_rows", 16, 1 << 16, target.slotRows);
    if (target.slotRows % 16 != 0) fail("slot_rows", "a multiple of 16");
    number(value("token_slot"), "token_slot", 1, 1 << 16, target.tokenSlot);
    number(value("gmm_tile_columns"), "gmm_tile_columns", 1, 1 << 20, target.tiles.gmmColumns);
    const Json& tile = value("weight_grad_tile");
    if (tile.is_array() && tile.size() == 2) {
      number(tile[0], "weight_grad_tile", 1, 1 << 20, target.tiles.weightGradRows);
      number(tile[1], "weight_grad_tile", 1, 1 << 20, target.tiles.weightGradColumns);
    } else {
      fail("weight_grad_tile", "an array of 2 numbers");
    }
    windows(target.windows);
  }

  void fail(const std::string& field, const std::string& expected) {
    if (error_.empty())
      error_ = fmt::format("{}: error: '{}' is missing or wrong, expected {}", path_, field, expected);
  }

  // The member of an object, or null.
  static const Json& member(const Json& object, const char* name) {
    static const Json kNull;
    const auto it = object.is_object() ? object.find(name) : object.end();
    return it == object.end() ? kNull : *it;
  }

  // Every figure is {"value": ..., "source": "..."}.
  const Json& value(const char* field) {
    const Json& figure = member(root_, field);
    if (!member(figure, "source").is_string()) fail(field, "an object with 'value' and 'source'");
    return member(figure, "value");
  }

  std::string text(const Json& object, const char* field) {
    const Json& found = member(object, field);
    if (found.is_string()) return found.get<std::string>();
    fail(field, "a string");
    return {};
  }

  bool hasSeparateCores() {
    const Json& kind = value("core_kind");
    if (kind != "unified" && kind != "separate") fail("core_kind", "\"unified\" or \"separate\"");
    return kind == "separate";
  }

  void number(const Json& found, const char* field, int64_t least, int64_t most, int32_t& out) {
    const bool fits = found.is_number_integer() && found >= least && found <= most;
    if (!fits) return fail(field, fmt::format("a number from {} to {}", least, most));
    out = found.get<int32_t>();
  }

  void windows(Windows& windows) {
    const Json& found = value("windows");
    number(member(found, "tokens"), "windows.tokens", 1, 1 << 16, windows.tokens);
    number(member(found, "rows"), "windows.rows", 1, 1 << 16, windows.rows);
    number(member(found, "sends"), "windows.sends", 1, 1 << 16, windows.sends);
    number(member(found, "returns"), "windows.returns", 1, 1 << 16, windows.returns);
    number(member(found, "experts"), "windows.experts", 1, 1 << 16, windows.experts);
  }

  const std::string path_;
  const Json& root_;
  std::string error_;
};

Expected<Target> readTarget(const std::string& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed) || fs::file_size(path, failed) > kMaxFileBytes || failed)
    return Error{fmt::format("{}: error: no such target file, or not a file of at most 1 MiB", path)};
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) return Error{fmt::format("{}: error: cannot be read", path)};
  const Json root = Json::parse(content.str(), nullptr, false);
  if (!root.is_object()) return Error{fmt::format("{}: error: is not a JSON object", path)};
  return Reader(path, root).run();
}

std::string available(std::span<const std::string> folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Expected<Target> loadTarget(const std::string& nameOrPath, std::span<const std::string> folders) {
  if (nameOrPath.ends_with(".json")) return readTarget(nameOrPath);
  if (nameOrPath.find('/') == std::string::npos)
    for (const std::string& folder : folders) {
      const std::string path = fmt::format("{}/{}.json", folder, nameOrPath);
      std::error_code failed;
      if (fs::exists(path, failed)) return readTarget(path);
    }
  return Error{fmt::format("error: unknown target '{}', available: {}", nameOrPath, available(folders))};
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
  }
  return folders;
}

}  // namespace sluice
