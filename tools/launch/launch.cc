#include "tools/launch/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "runtime/base/child_process.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_descriptor.h"

namespace sluice::tools {

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTermination = kSecond;  // from SIGTERM to SIGKILL
constexpr int64_t kLook = kSecond / 4;     // between two checks whether ranks are stopped

Error systemError(std::string_view what) { return Error{fmt::format("{}: {}", what, std::strerror(errno))}; }

Expected<std::string> makeJobName() {
  std::array<uint64_t, 2> bits;
  if (::getrandom(bits.data(), sizeof(bits), 0) != sizeof(bits))
    return systemError("cannot draw a job's name");
  return fmt::format("sluice-{:016x}{:016x}", bits[0], bits[1]);
}

// The environment of this process with some variables replaced.
std::vector<std::string> makeEnvironment(const Launch& launch, const std::string& job, int rank) {
  const std::vector<std::string> own = {
      "SLUICE_JOB=" + job, fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", launch.ranks),
      fmt::format("LOCAL_RANK={}", rank), fmt::format("LOCAL_WORLD_SIZE={}", launch.ranks)};
  std::vector<std::string> all = own;
  for (char** each = environ; *each; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    if (std::none_of(own.begin(), own.end(), [&](const std::string& mine) { return mine.starts_with(name); }))
      all.emplace_back(variable);
  }
  return all;
}

std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The signals that the launcher reads from a descriptor: those that would end it, except signals that the
// process that started it ignores (nohup).
sigset_t watchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

struct Child {
  pid_t pid = -1;
  FileDescriptor errors;  // the pipe from its standard error
  bool running = false;
  int status = 0;      // from waitpid()
  bool ended = false;  // by the launcher's signals
  int stopped = 0;     // the signal that stopped it; not set for a debugger, whose user knows
};

// Runs in a child between fork and exec: only async-signal-safe calls.
int becomeRank(const char* program, char* const* argv, char* const* environment, int errors,
               const sigset_t& mask) {
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) ::close(nothing);
  ::dup2(errors, STDERR_FILENO);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::execve(program, argv, environment);
  constexpr std::string_view kText = "sluice: error: cannot start the program of a rank\n";
  static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
  return kNotStarted;
}

void writeErrors(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

class Launcher {
 public:
  explicit Launcher(const Launch& launch)
      : launch_(launch), children_(static_cast<size_t>(launch.ranks)), relay_(launch.ranks) {}
  ~Launcher();

  Expected<int> run();

 private:
  Status watchSignals();
  Status start(int rank, const std::string& job);
  void wait();
  void takeSignals();
  void takeErrors(int rank);
  void reap();
  void pressOn();
  void watchStopped();
  std::string stoppedRanks() const;
  void signalAll(int signal);
  bool anyRunning() const;
  Expected<int> result() const;

  const Launch& launch_;
  std::vector<Child> children_;
  Relay relay_;
  sigset_t oldMask_{};
  FileDescriptor signals_;
  std::optional<size_t> failed_;  // the first child that failed
  int endSignal_ = 0;             // the signal that asked this process to end
  int64_t next_ = 0;              // time of the next signal to all; 0: never
  int pressed_ = 0;               // the last signal sent to all
  int64_t allStopped_ = 0;        // how long all running ranks have been stopped
  int64_t looked_ = 0;            // time of the last check that found that; 0: some rank was running
};

Launcher::~Launcher() {
  signalAll(SIGKILL);
  for (Child& child : children_) {
    if (child.running) ::waitpid(child.pid, nullptr, 0);
  }
  if (signals_) ::pthread_sigmask(SIG_SETMASK, &oldMask_, nullptr);
}

Status Launcher::watchSignals() {
  const sigset_t set = watchedSignals();
  if (::pthread_sigmask(SIG_BLOCK, &set, &oldMask_) != 0) return systemError("cannot watch signals");
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_) return {};
  const Error error = systemError("cannot watch signals");
  ::pthread_sigmask(SIG_SETMASK, &oldMask_, nullptr);
  return error;
}

Status Launcher::start(int rank, const std::string& job) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return systemError("cannot make a pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::vector<std::string> arguments = launch_.arguments;
  std::vector<std::string> environment = makeEnvironment(launch_, job, rank);
  const std::vector<char*> argv = pointersTo(arguments), variables = pointersTo(environment);
  const Expected<pid_t> pid = startChild(
      [&] { return becomeRank(launch_.program.c_str(), argv.data(), variables.data(), ends[1], oldMask_); });
  ::close(ends[1]);
  Child& child = children_[static_cast<size_t>(rank)];
  child.errors = FileDescriptor(ends[0]);
  if (!pid) return Error{fmt::format("rank {}: {}", rank, pid.error().message)};
  child.pid = *pid;
  child.running = true;
  return {};
}

bool Launcher::anyRunning() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
}

void Launcher::signalAll(int signal) {
  for (Child& child : children_) {
    if (!child.running) continue;
    child.ended = true;
    ::kill(child.pid, signal);
  }
}

void Launcher::takeErrors(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  std::array<char, 4096> bytes;
  while (child.errors) {
    const ssize_t n = ::read(child.errors.get(), bytes.data(), bytes.size());
    if (n > 0) {
      writeErrors(relay_.add(rank, {bytes.data(), static_cast<size_t>(n)}));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    writeErrors(relay_.finish(rank));
    child.errors.reset();
  }
}

void Launcher::takeSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD || endSignal_ != 0) continue;
    endSignal_ = static_cast<int>(info.ssi_signo);
    pressed_ = SIGTERM;
    signalAll(SIGTERM);
    next_ = monotonicNanoseconds() + kTermination;
  }
}

void Launcher::reap() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    if (!child.running || ::waitpid(child.pid, &child.status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid)
      continue;
    child.stopped = WIFSTOPPED(child.status) ? WSTOPSIG(child.status) : 0;
    if (WIFSTOPPED(child.status) || WIFCONTINUED(child.status)) continue;
    child.running = false;
    if (child.status == 0 || child.ended) continue;
    // a killed rank is the cause of the others' errors, even if it is seen later
    if (!failed_ || (WIFSIGNALED(child.status) && !WIFSIGNALED(children_[*failed_].status))) failed_ = rank;
    if (next_ == 0) next_ = monotonicNanoseconds() + static_cast<int64_t>(launch_.graceSeconds * kSecond);
  }
}

// Asks ranks to end the first time, then kills them. A stopped process reacts only to SIGKILL.
void Launcher::pressOn() {
  if (next_ == 0 || monotonicNanoseconds() < next_) return;
  pressed_ = pressed_ == 0 ? SIGTERM : SIGKILL;
  signalAll(pressed_);
  next_ = pressed_ == SIGTERM ? monotonicNanoseconds() + kTermination : 0;
}
// Adds up the time between checks that find all ranks stopped. A late check counts for at most two intervals,
// because the launcher may have been stopped with the ranks: Ctrl-Z stops this process, too.
void Launcher::watchStopped() {
  const bool all = anyRunning() && std::all_of(children_.begin(), children_.end(), [](const Child& child) {
                     return !child.running || child.stopped != 0;
                   });
  const int64_t now = monotonicNanoseconds();
  if (!all) allStopped_ = 0;
  if (all && looked_ != 0) allStopped_ += std::min(now - looked_, 2 * kLook);
  looked_ = all ? now : 0;
}

std::string Launcher::stoppedRanks() const {
  std::string text;
  for (size_t rank = 0; rank < children_.size(); ++rank)
    if (children_[rank].running && children_[rank].stopped != 0)
      text += fmt::format("{}rank {} (SIG{})", text.empty() ? "" : ", ", rank,
                          ::sigabbrev_np(children_[rank].stopped));
  return text;
}

void Launcher::wait() {
  std::vector<pollfd> watched = {{signals_.get(), POLLIN, 0}};
  std::vector<int> ranks;
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    if (!children_[rank].errors) continue;
    watched.push_back({children_[rank].errors.get(), POLLIN, 0});
    ranks.push_back(static_cast<int>(rank));
  }
  int64_t left = next_ == 0 ? -1 : std::max<int64_t>(0, next_ - monotonicNanoseconds());
  if (looked_ != 0) left = left < 0 ? kLook : std::min(left, kLook);
  ::poll(watched.data(), watched.size(), left < 0 ? -1 : static_cast<int>(left / 1'000'000) + 1);
  for (size_t i = 0; i < ranks.size(); ++i)
    if (watched[i + 1].revents != 0) takeErrors(ranks[i]);
  takeSignals();
  reap();
  watchStopped();
  pressOn();
}

Expected<int> Launcher::run() {
  const Expected<std::string> job = makeJobName();
  if (!job) return job.error();
  if (Status status = watchSignals(); !status) return status.error();
  for (int rank = 0; rank < launch_.ranks; ++rank)
    if (Status status = start(rank, *job); !status) return status.error();
  const int64_t stopped = limitNanoseconds(launch_.stoppedSeconds);
  while (anyRunning()) {
    wait();
    // pressOn() ends a job that is already ending
    if (!failed_ && endSignal_ == 0 && allStopped_ >= stopped)
      return Error{fmt::format("waited {:g} s for ranks that are all stopped: {}", launch_.stoppedSeconds,
                               stoppedRanks())};
  }
  for (int rank = 0; rank < launch_.ranks; ++rank) takeErrors(rank);
  return result();
}

Expected<int> Launcher::result() const {
  if (endSignal_ != 0) return 128 + endSignal_;
  if (!failed_) return 0;
  const int status = children_[*failed_].status;
  if (WIFSIGNALED(status))
    return Error{fmt::format("rank {} was killed by signal {} ({})", *failed_, WTERMSIG(status),
                             ::strsignal(WTERMSIG(status)))};
  for (size_t rank = 0; rank < children_.size(); ++rank)
    if (children_[rank].ended)
      return Error{fmt::format("rank {} did not end within {:g} s after rank {} had failed, and was killed",
                               rank, launch_.graceSeconds, *failed_)};
  if (!relay_.hasShown())
    return Error{fmt::format("rank {} ended with exit status {}", *failed_, WEXITSTATUS(status))};
  return WEXITSTATUS(status);
}

constexpr size_t kLongestLine = size_t{1} << 16;  // longer lines are shown in parts
constexpr std::string_view kError = "sluice: error: ";
constexpr std::string_view kRankError = "sluice: error: rank ";  // already names its rank

}  // namespace

Expected<int> launchRanks(const Launch& launch) { return Launcher(launch).run(); }

std::string Relay::add(int rank, std::string_view bytes) {
  std::string& open = open_[static_cast<size_t>(rank)];
  open.append(bytes);
  std::string text;
  size_t begin = 0;
  for (size_t end; (end = open.find('\n', begin)) != open.npos; begin = end + 1)
    text += show(rank, std::string_view(open).substr(begin, end - begin));
  open.erase(0, begin);
  if (open.size() > kLongestLine) text += finish(rank);
  return text;
}

std::string Relay::finish(int rank) {
  std::string& open = open_[static_cast<size_t>(rank)];
  std::string text = open.empty() ? std::string() : show(rank, open);
  open.clear();
  return text;
}

std::string Relay::show(int rank, std::string_view line) {
  if (line.starts_with(kError) && !errors_.emplace(line).second) return {};
  shown_ = true;
  const bool named = open_.size() > 1 && !line.starts_with(kRankError);
  return named ? fmt::format("[rank {}] {}\n", rank, line) : fmt::format("{}\n", line);
}

}  // namespace sluice::tools
