#include "tools/cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/rank_path.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

Expected<std::string> readAll(int fd, const std::string& path) {
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (;;) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{fmt::format("{}: cannot read: {}", path, std::strerror(errno))};
    if (n == 0) return text;
    const std::string_view more(chunk.data(), static_cast<size_t>(n));
    // What is no text, or /dev/zero, is not read to its end.
    if (const size_t zero = more.find('\0'); zero != more.npos)
      return Error{
          fmt::format("{}: found a zero byte at offset {}, expected text", path, text.size() + zero)};
    text.append(more);
    if (text.size() > kMaxTextBytes) return Error{fmt::format("{}: larger than 1 GiB", path)};
  }
}

}  // namespace

Expected<std::vector<std::string>> rankPaths(const std::string& pattern, int ranks) {
  if (ranks > 1 && !hasRank(pattern))
    return Error{fmt::format("found no {} in '{}', expected it in the files of a program of {} ranks",
                             kRankInPath, pattern, ranks)};
  std::vector<std::string> paths;
  for (int rank = 0; rank < ranks; ++rank) paths.push_back(rankPath(pattern, std::to_string(rank)));
  return paths;
}

Status probeWritable(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (Expected<PendingFile> file = PendingFile::create(path); !file) return file.error();
  return {};
}

Status commitAll(std::vector<PendingFile>& files) {
  for (PendingFile& file : files)
    if (Status status = file.commit(); !status) return status;
  return {};
}

Expected<std::string> readText(const std::string& path) {
  if (path == "-") return readAll(STDIN_FILENO, "standard input");
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error{fmt::format("{}: cannot read: {}", path, std::strerror(errno))};
  return readAll(file.get(), path);
}

Status writeText(const std::string& path, std::string_view text) {
  return replaceFile(path, std::as_bytes(std::span(text)));
}

Status printText(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !written)
    return Error{fmt::format("cannot write to standard output: {}", std::strerror(errno))};
  return {};
}

std::vector<std::string> splitList(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == text.npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace sluice::tools
