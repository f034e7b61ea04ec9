// Child processes that do not outlive their parent: the only fork() of the tools.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>

#include "runtime/base/expected.h"

namespace sluice {

inline constexpr int kNotStarted = 127;  // exit status of a child that could not become what it should

// Forks. The child runs `body` and ends with its result as exit status, without the parent's destructors and
// buffers; when this thread of the parent ends, however it ends, the child gets the signal `atEnd`. In a
// process of several threads `body` is limited to async-signal-safe calls. Error: no process can be made.
Expected<pid_t> startChild(const std::function<int()>& body, int atEnd = SIGKILL);

// Waits for the child's end. Returns the status, as of waitpid().
int awaitChild(pid_t child);

}  // namespace sluice
