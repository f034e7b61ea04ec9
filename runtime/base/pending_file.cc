#include "runtime/base/pending_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

std::string parentFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Error systemError(const std::string& path, const char* what) {
  return Error{fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

constexpr int kAttempts = 100;  // names that an earlier process may have left

std::string descriptorPath(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// No file if the file system has no nameless files, or cannot give them a name later.
FileDescriptor openNameless(const std::string& path) {
  FileDescriptor file(::open(parentFolder(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (file && ::access(descriptorPath(file.get()).c_str(), F_OK) != 0) file.reset();
  return file;
}

// The names that a signal handler removes; a handler may use nothing else. A seat is taken while its name is
// not null.
constexpr size_t kSeats = 4096;  // files of one process; those beyond are left by a signal
std::array<std::atomic<char*>, kSeats> seats;
std::atomic<bool> removing = false;  // a handler reads names: from now on none is freed

int takeSeat(const std::string& name) {
  char* copy = ::strdup(name.c_str());
  for (size_t i = 0; copy != nullptr && i < kSeats; ++i) {
    char* none = nullptr;
    if (seats[i].compare_exchange_strong(none, copy)) return static_cast<int>(i);
  }
  std::free(copy);
  return -1;
}

void leaveSeat(int seat) {
  if (seat < 0) return;
  char* const name = seats[static_cast<size_t>(seat)].exchange(nullptr);
  // pairs with removeNamedFiles(): a handler that found the name has set `removing` before
  if (!removing) std::free(name);
}

void removeNamedFiles(int signal) {
  removing = true;
  for (std::atomic<char*>& seat : seats)
    if (const char* name = seat.load()) ::unlink(name);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Blocks signals while a file has a temporary name: the handler must not see it half set.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Makes the rename itself durable. A file system that cannot sync a folder is no reason to fail.
void syncFolder(const std::string& path) {
  const FileDescriptor folder(::open(parentFolder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
}

}  // namespace

PendingFile::PendingFile(std::string path, std::string temporary, FileDescriptor file)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      seat_(temporary_.empty() ? -1 : takeSeat(temporary_)),
      file_(std::move(file)) {}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      seat_(std::exchange(other.seat_, -1)),
      file_(std::move(other.file_)),
      finished_(other.finished_) {}

PendingFile& PendingFile::operator=(PendingFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  seat_ = std::exchange(other.seat_, -1);
  file_ = std::move(other.file_);
  finished_ = other.finished_;
  return *this;
}

PendingFile::~PendingFile() { discard(); }

void PendingFile::discard() {
  file_.reset();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  leaveSeat(std::exchange(seat_, -1));
  temporary_.clear();
}

Expected<PendingFile> PendingFile::create(const std::string& path, PendingName name) {
  if (path.empty()) return Error{"the name of the output file is empty"};
  errno = 0;
  struct stat info;
  // A rename would put a plain file in the place of a device such as /dev/null.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error{fmt::format("{}: cannot write: found a {}, expected a regular file or nothing", path,
                             S_ISDIR(info.st_mode) ? "folder" : "special file")};
  if (errno == ENAMETOOLONG) return systemError(path, "cannot write");
  if (name == PendingName::kNone)
    if (FileDescriptor file = openNameless(path)) return PendingFile(path, {}, std::move(file));
  const SignalsBlocked blocked;
  std::string temporary = path + ".tmp-XXXXXX";
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return systemError(path, "cannot write");
  // mkostemp makes files for the owner only; the umask can only be read by setting it
  const mode_t mask = ::umask(022);
  ::umask(mask);
  ::fchmod(file.get(), 0666 & ~mask);
  return PendingFile(path, std::move(temporary), std::move(file));
}

Status PendingFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return systemError(path_, "cannot write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status PendingFile::finish() {
  if (finished_) return {};
  if (::fsync(file_.get()) != 0) return systemError(path_, "cannot write");
  finished_ = true;
  return {};
}

Status PendingFile::commit() {
  if (Status status = finish(); !status) return status;
  if (Status status = giveName(); !status) return status;
  discard();
  syncFolder(path_);
  return {};
}

// A link needs a free name: if there is an old file, the new one gets a temporary name until the rename.
Status PendingFile::giveName() {
  const SignalsBlocked blocked;
  if (temporary_.empty()) {
    const std::string self = descriptorPath(file_.get());
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
    for (int attempt = 0; errno == EEXIST && temporary_.empty() && attempt < kAttempts; ++attempt) {
      std::string name = fmt::format("{}.tmp-{}-{}", path_, ::getpid(), attempt);
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
        temporary_ = std::move(name);
    }
    if (temporary_.empty()) return systemError(path_, "cannot write");
    seat_ = takeSeat(temporary_);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return systemError(path_, "cannot write");
  leaveSeat(std::exchange(seat_, -1));
  temporary_.clear();
  return {};
}

Status replaceFile(const std::string& path, std::span<const std::byte> bytes) {
  Expected<PendingFile> file = PendingFile::create(path);
  if (!file) return file.error();
  if (Status status = file->write(bytes); !status) return status;
  return file->commit();
}

void removeNamedFilesOnSignals() {
  ::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action{};
  action.sa_handler = &removeNamedFiles;
  ::sigfillset(&action.sa_mask);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction before{};
    // Signals that the parent ignores, as nohup does, stay ignored.
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
      ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace sluice
