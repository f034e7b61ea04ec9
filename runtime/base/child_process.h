// Forks of a process: child processes that do not outlive their parent (the only fork() of the tools), and
// objects that a child cannot use.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

inline constexpr int kNotStarted = 127;  // exit status of a child that could not become what it should

// Forks. The child runs `body` and ends with its result as exit status, without the parent's destructors and
// buffers; when this thread of the parent ends, however it ends, the child gets the signal `atEnd`. In a
// process of several threads `body` is limited to async-signal-safe calls. Error: no process can be made.
Expected<pid_t> startChild(const std::function<int()>& body, int atEnd = SIGKILL);

// Waits for the child's end. Returns the status, as of waitpid().
int awaitChild(pid_t child);

// The process that made an object, which a forked child cannot use: the child does not have the threads of
// its parent, and a lock may stay held in it. It may use nothing else of the object: calls are errors, and
// destructors skip everything that would wait. Value type; any thread.
class Origin {
 public:
  bool isForked() const { return forks() != forks_; }
  // Returns an error that names `what` if this process is a forked child.
  Status check(std::string_view what) const;

 private:
  // The number of forks that led to this process. Used because reading the process id costs as much as the
  // rest of requesting a step.
  static int forks();

  const int forks_ = forks();
  const pid_t process_ = getpid();
};

}  // namespace sluice
