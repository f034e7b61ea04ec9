// PendingFile: a file that is not there until it is complete.
//
// Resource type, one owner, movable. The bytes go to a file without a name in the target's folder; commit()
// makes it durable and puts it in the place of the target, so that a reader sees the old file or the new one.
// Without a commit nothing is left, however the process ends; where the file system has no files without
// names, it is one beside the target, which the destructor removes. One thread at a time.
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

  // Writes what is buffered to the disk; the target is still untouched. Everything that is likely to fail (a
  // full disk) fails here, before the first of several files takes its name.
  Status finish();

  // finish() where it was not called, then the name.
  Status commit();

  const std::string& path() const { return path_; }

 private:
  PendingFile(std::string path, std::string temporary, int fd);
  void discard();
  Status giveName();

  std::string path_;
  std::string temporary_;  // empty: the file has no name
  int fd_ = -1;
  bool finished_ = false;
};

}  // namespace sluice::tools
