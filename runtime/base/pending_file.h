// PendingFile: a file that does not appear until it is complete.
//
// Resource type, one owner, movable. The bytes go to a file without a name in the target's folder; commit()
// makes it durable and puts it in the place of the target, so that a reader sees the old file or the new one.
// Without a commit nothing is left, however the process ends. Where the file system has no files without
// names, the file has a name beside the target; the destructor removes it, and so does a signal that ends the
// process if removeNamedFilesOnSignals() was called. All code that writes files uses this. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"

namespace sluice {

enum class PendingName : uint8_t { kNone, kBeside };

class PendingFile {
 public:
  // Errors: the folder cannot be written, or the target exists and is not a regular file. kBeside, for tests,
  // is used instead of kNone where the file system has no files without names.
  static Expected<PendingFile> create(const std::string& path, PendingName name = PendingName::kNone);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&& other) noexcept;
  ~PendingFile();

  Status write(std::span<const std::byte> bytes);

  // Writes what is buffered to the disk; the target is still untouched. Everything that is likely to fail (a
  // full disk) fails here, before the first of several files takes its name.
  Status finish();

  // Calls finish() if it was not called, then gives the file its name.
  Status commit();

  const std::string& path() const { return path_; }

 private:
  PendingFile(std::string path, std::string temporary, FileDescriptor file);
  void discard();
  Status giveName();

  std::string path_;
  std::string temporary_;  // empty: the file has no name
  int seat_ = -1;          // the place of `temporary_` among the names that a signal removes
  FileDescriptor file_;
  bool finished_ = false;
};

// Replaces the file at `path` by these bytes.
Status replaceFile(const std::string& path, std::span<const std::byte> bytes);

// From now on SIGHUP, SIGINT and SIGTERM remove files with names before they end this process, and a limit on
// the size of files (SIGXFSZ) is an error of write(). For the main function of a tool; a library must not.
void removeNamedFilesOnSignals();

}  // namespace sluice
