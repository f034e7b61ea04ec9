#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/pending_file.h"
#include "runtime/program/codec.h"

namespace sluice {
namespace {

Error systemError(const std::string& path, std::string_view what) {
  return Error{fmt::format("{}: {}: {}", path, what, std::generic_category().message(errno))};
}

Expected<std::vector<std::byte>> readBytes(const std::string& path) {
  // Opening a pipe must not wait for a writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return systemError(path, "cannot open");
  if (!S_ISREG(info.st_mode))
    return Error{fmt::format("{}: not a regular file, expected a program file", path)};
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kMaxFileBytes)
    return Error{fmt::format("{}: {} bytes, a program file has at most {}", path, size, kMaxFileBytes)};

  std::vector<std::byte> bytes(size);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return systemError(path, "cannot read");
    if (count == 0) break;  // the file has shrunk in the meantime; decode() reports it
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
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
  // A program that readers refuse, for example with more ranks than the limit, is not written.
  const std::vector<std::byte> bytes = encode(program);
  if (const Expected<TaskProgram> again = decode(bytes); !again.ok())
    return Error{fmt::format("{}: not written: {}", path, again.error().message)};
  return replaceFile(path, bytes);
}

}  // namespace sluice
