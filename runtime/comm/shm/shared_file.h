// SharedFile: the memory of a job, a file in no directory that its processes pass to each other.
//
// It is as large as a file may be and takes memory page by page as it is touched. Where the machine has no
// page left, the access itself fails: the process is killed (SIGBUS, or by the system's choice of a victim),
// which no call can predict. Only one user's processes can open it (mode 0600), and no process can shrink it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"

namespace sluice {

// A new file. Errors: a system without such files; a limit of file sizes that leaves no room.
Expected<FileDescriptor> makeSharedFile();
// Of a file that came from another process.
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
