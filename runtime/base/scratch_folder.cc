#include "runtime/base/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace sluice {

ScratchFolder::ScratchFolder(std::string path) : path_(std::move(path)) {}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Expected<ScratchFolder> ScratchFolder::create(std::string_view prefix) {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  if (failed) return Error{fmt::format("no folder for temporary files: {}", failed.message())};
  std::string path = (parent / fmt::format("{}-XXXXXX", prefix)).string();
  if (::mkdtemp(path.data()) == nullptr)
    return Error{
        fmt::format("{}: cannot make a temporary folder: {}", parent.string(), std::strerror(errno))};
  return ScratchFolder(std::move(path));
}

}  // namespace sluice
