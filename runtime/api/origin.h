// Origin: which process made something that a child, forked from it, cannot use.
//
// Value type; any thread. Threads and locks of a parent are not there in its child, so that nothing but this
// may be looked at there: calls are errors, and destructors leave alone what they would wait for.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

class Origin {
 public:
  bool isForked() const { return forks() != forks_; }
  // Error, with `what` was made: the process is a forked child.
  Status check(std::string_view what) const;

 private:
  // How often this process, and those that it comes from, were forked: asking the system for the process
  // costs as much as the rest of asking for a step.
  static int forks();

  const int forks_ = forks();
  const pid_t process_ = getpid();
};

}  // namespace sluice
