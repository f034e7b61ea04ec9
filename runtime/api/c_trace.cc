// Traces of the C interface.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/api/c_handles.h"
#include "runtime/comm/shm/file_descriptor.h"
#include "runtime/trace/chrome_trace.h"

namespace sluice::capi {
namespace {

constexpr uint64_t kMostSpans = uint64_t{1} << 28;

Error systemError(const std::string& path, const char* what) {
  return Error{fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

bool writeAll(const FileDescriptor& file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) done += static_cast<size_t>(written);
  }
  return true;
}

// A new file beside `path`, with the permissions of one; its name in `temporary`.
FileDescriptor openBeside(const std::string& path, std::string& temporary) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary = fmt::format("{}.{}-{}.tmp", path, getpid(), attempt);
    const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return FileDescriptor(file);
  }
  return FileDescriptor();
}

// By a temporary file beside it: a reader sees the old file or the new one.
Status replaceFile(const std::string& path, const std::string& text) {
  // a rename would put a file in the place of a device such as /dev/null
  struct stat there{};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return Error{fmt::format("{}: not a regular file, cannot be replaced by a trace", path)};
  std::string temporary;
  const FileDescriptor file = openBeside(path, temporary);
  if (!file) return systemError(path, "cannot create a file beside it");
  if (writeAll(file, text) && fsync(file.get()) == 0 && rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  const Error error = systemError(path, "cannot write");
  unlink(temporary.c_str());
  return error;
}

// The contexts must be different ranks of one program, with no step under way.
Outcome checkTraced(sluice_context* const* contexts, size_t count) {
  if (!contexts || count == 0) return badArgument("no contexts");
  std::vector<bool> seen;
  for (size_t i = 0; i < count; ++i) {
    if (Outcome outcome = checkIdle(contexts[i]); outcome.status != SLUICE_OK) return outcome;
    if (contexts[i]->program.verified().fingerprint() != contexts[0]->program.verified().fingerprint())
      return badArgument(fmt::format("context {} is of another program than context 0", i));
    const auto rank = static_cast<size_t>(contexts[i]->transport->rank());
    seen.resize(std::max(seen.size(), rank + 1));
    if (seen[rank]) return badArgument(fmt::format("two contexts of rank {}", rank));
    seen[rank] = true;
  }
  return {};
}

}  // namespace
}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_context_trace_start(sluice_context* context, uint64_t spans) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    if (spans > kMostSpans)
      return badArgument(fmt::format("{} spans asked for, expected at most {}", spans, kMostSpans));
    if (spans == 0)
      context->context->startTrace();
    else
      context->context->startTrace(static_cast<size_t>(spans));
    return {};
  });
}

sluice_status sluice_context_trace_stop(sluice_context* context) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    context->context->stopTrace();
    return {};
  });
}

sluice_status sluice_trace_write(sluice_context* const* contexts, size_t count, const char* path) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!path) return badArgument("path is null");
    if (Outcome outcome = checkTraced(contexts, count); outcome.status != SLUICE_OK) return outcome;
    const sluice::TaskProgram& program = contexts[0]->program.tables();
    std::vector<sluice::Trace> ranks(static_cast<size_t>(program.ranks));
    for (size_t i = 0; i < count; ++i)
      ranks[static_cast<size_t>(contexts[i]->transport->rank())] = contexts[i]->context->takeTrace();
    if (sluice::Status written = replaceFile(path, sluice::chromeTrace(program, ranks)); !written)
      return failed(written.error());
    return {};
  });
}
