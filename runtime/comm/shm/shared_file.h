// SharedFile: the memory of a job, a file in no directory that its processes pass to each other.
//
// It is as large as a file may be and takes memory page by page as it is touched. If the machine has no page
// left, the access itself fails: the process is killed (by SIGBUS or by the out-of-memory killer), which no
// call can predict. Only processes of one user can open it (mode 0600), and no process can shrink it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"

namespace sluice {

// Makes a new file. Errors: the system has no such files; the limit on file sizes is too low.
Expected<FileDescriptor> makeSharedFile();
// The size of a file that came from another process.
Expected<size_t> sharedFileBytes(int file);

// Part of a shared file in this process. Resource type: one owner, moved but not copied. A forked child does
// not inherit it, and core files leave it out.
class SharedMapping {
 public:
  SharedMapping() = default;
  ~SharedMapping();
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;

  // `offset` is a multiple of `alignment`, 4096 or kHugePageBytes, and so is the address.
  static Expected<SharedMapping> map(int file, size_t offset, size_t bytes, size_t alignment);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
