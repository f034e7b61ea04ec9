// PendingFile: a file that is not there until it is complete.
//
// Resource type, one owner, movable. The bytes go to a temporary file beside the target; commit() makes it
// durable and renames it over the target, so that a reader sees the old file or the new one. Without a
// commit the destructor removes the temporary file. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/expected.h"

namespace sluice::tools {

class PendingFile {
 public:
  // Errors: the folder cannot be written, or the target exists and is not a regular file.
  static Expected<PendingFile> create(const std::string& path);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&& other) noexcept;
  ~PendingFile();

  Status write(std::span<const std::byte> bytes);

  // Writes what is buffered to the disk and closes it; the target is still untouched. Everything that is
  // likely to fail (a full disk) fails here, before the first of several files is renamed.
  Status finish();

  // finish() where it was not called, then the rename.
  Status commit();

  const std::string& path() const { return path_; }

 private:
  PendingFile(std::string path, std::string temporary, int fd);
  void discard();

  std::string path_;
  std::string temporary_;  // empty: nothing to remove
  int fd_ = -1;
};

}  // namespace sluice::tools
