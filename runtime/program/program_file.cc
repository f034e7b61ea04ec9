#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/program/codec.h"
#include "runtime/program/seal.h"

namespace sluice {
namespace {

constexpr int kTemporaryNames = 100;  // tried before giving up

// An open file descriptor; closed when it goes.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  int fd() const { return fd_; }
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

Error systemError(const std::string& path, std::string_view what) {
  return Error{fmt::format("{}: {}: {}", path, what, std::generic_category().message(errno))};
}

Expected<std::vector<std::byte>> readBytes(const std::string& path) {
  // Opening a pipe must not wait for a writer.
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0) return systemError(path, "cannot open");
  if (!S_ISREG(info.st_mode))
    return Error{fmt::format("{}: not a regular file, expected a program file", path)};
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kMaxFileBytes)
    return Error{fmt::format("{}: {} bytes, a program file has at most {}", path, size, kMaxFileBytes)};

  std::vector<std::byte> bytes(size);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return systemError(path, "cannot read");
    if (count == 0) break;  // the file has shrunk meanwhile; decode() tells
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

bool writeAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

// Opens a new file beside `path`, so that a rename replaces it at once.
int openTemporary(const std::string& path, std::string& name) {
  for (int i = 0; i < kTemporaryNames; ++i) {
    name = fmt::format("{}.{}.{}.tmp", path, ::getpid(), i);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

}  // namespace

Expected<TaskProgram> readProgram(const std::string& path) {
  Expected<std::vector<std::byte>> bytes = readBytes(path);
  if (!bytes.ok()) return bytes.error();
  Expected<TaskProgram> program = decode(*bytes);
  if (!program.ok()) return Error{fmt::format("{}: {}", path, program.error().message)};
  return program;
}

Status writeProgram(const TaskProgram& program, const std::string& path) {
  // A rename would put a file in the place of a device such as /dev/null.
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error{fmt::format("{}: not a regular file, cannot be replaced by a program file", path)};

  // What no reader takes, such as more ranks than the limit, is not written either.
  const std::vector<std::byte> bytes = encode(program);
  if (const Expected<TaskProgram> again = decode(bytes); !again.ok())
    return Error{fmt::format("{}: not written: {}", path, again.error().message)};
  std::string temporary;
  File file(openTemporary(path, temporary));
  if (file.fd() < 0) return systemError(path, "cannot create a file beside it");
  if (writeAll(file.fd(), bytes) && ::fsync(file.fd()) == 0 && file.close() &&
      ::rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  const Error error = systemError(path, "cannot write");
  ::unlink(temporary.c_str());
  return error;
}

}  // namespace sluice
