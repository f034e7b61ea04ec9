// PendingFile: a file that does not appear until it is complete.
//
// Resource type, one owner, movable. The bytes go to a nameless file in the target's folder; commit() makes
// it durable and puts it in the place of the target, so that a reader sees the old file or the new one.
// Without a commit nothing is left over, however the process ends; SIGKILL between the two calls of a commit
// that replaces a file leaves the new one, complete, as NAME.tmp-PID-N beside the old one. If the file system
// has no nameless files, the file has a temporary name beside the target; the destructor removes it, and so
// does a signal that ends the process if removeNamedFilesOnSignals() was called. All code that writes files
// uses this class. One thread at a time.
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
  // Errors: the folder is not writable; the target exists and is not a regular file. kBeside, for tests,
  // behaves as on a file system without nameless files.
  static Expected<PendingFile> create(const std::string& path, PendingName name = PendingName::kNone);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&& other) noexcept;
  ~PendingFile();

  Status write(std::span<const std::byte> bytes);

  // Writes what is buffered to the disk; the target is not touched yet. The likely failures (a full disk)
  // occur here, before the first of several files takes its name.
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

// After this call SIGHUP, SIGINT and SIGTERM remove temporary files before they end this process, and
// reaching the limit on file sizes (SIGXFSZ) is an error of write(). For the main function of a tool; a
// library must not call it.
void removeNamedFilesOnSignals();

}  // namespace sluice
