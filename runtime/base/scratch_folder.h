// ScratchFolder: a folder for temporary files that goes with them.
//
// Resource type, one owner, movable.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

class ScratchFolder {
 public:
  // PREFIX-XXXXXX in the system's folder for temporary files ($TMPDIR). Error: it cannot be made.
  static Expected<ScratchFolder> create(std::string_view prefix);

  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path);
  std::string path_;  // empty: moved away
};

}  // namespace sluice
