#include "runtime/comm/shm/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/huge_pages.h"

namespace sluice {
namespace {

constexpr size_t kFileBytes = size_t{1} << 46;     // half of the address space of a process
constexpr size_t kSmallestFile = size_t{1} << 24;  // no layer fits into less

}  // namespace

Expected<FileDescriptor> makeSharedFile() {
  FileDescriptor file(memfd_create("sluice", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error{fmt::format("cannot make shared memory: {}", std::strerror(errno))};
  // writing a file beyond the limit would raise a deadly signal instead of an error
  rlimit limit;
  size_t bytes = kFileBytes;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min<size_t>(bytes, limit.rlim_cur / kHugePageBytes * kHugePageBytes);
  if (bytes < kSmallestFile)
    return Error{fmt::format("the limit of file sizes is {} bytes, but shared memory needs at least {}",
                             limit.rlim_cur, kSmallestFile)};
  if (fchmod(file.get(), 0600) != 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Error{fmt::format("cannot make shared memory of {} bytes: {}", bytes, std::strerror(errno))};
  return file;
}

Expected<size_t> sharedFileBytes(int file) {
  struct stat state;
  if (fstat(file, &state) != 0)
    return Error{fmt::format("cannot read the size of shared memory: {}", std::strerror(errno))};
  return static_cast<size_t>(state.st_size);
}

SharedMapping::~SharedMapping() {
  if (data_) munmap(data_, size_);
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Expected<SharedMapping> SharedMapping::map(int file, size_t offset, size_t bytes, size_t alignment) {
  SharedMapping result;
  if (bytes == 0) return result;
  const auto failed = [&] {
    return Error{fmt::format("cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno))};
  };
  // extra space to begin at a huge page, so that address and file offset have the same alignment; the surplus
  // is then unmapped
  const size_t slack = alignment > 4096 ? alignment : 0;
  void* const room =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return failed();
  auto* const begin = static_cast<std::byte*>(room);
  const size_t before = slack > 0 ? -reinterpret_cast<uintptr_t>(room) % alignment : 0;
  // NORESERVE: the worst case of a routing is far more than any step touches
  void* const mapping = mmap(begin + before, bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (mapping == MAP_FAILED) {
    const Error error = failed();
    munmap(room, bytes + slack);
    return error;
  }
  if (before > 0) munmap(begin, before);
  if (slack > before) munmap(begin + before + bytes, slack - before);
  result.data_ = static_cast<std::byte*>(mapping);
  result.size_ = bytes;
  madvise(mapping, bytes, MADV_DONTFORK);
  // the death of a process is noticed only after its core file has been written
  madvise(mapping, bytes, MADV_DONTDUMP);
  if (slack > 0) adviseHugePages(mapping, bytes);
  return result;
}

}  // namespace sluice
