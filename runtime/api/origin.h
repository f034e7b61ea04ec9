// Origin: the process that made an object, which a forked child cannot use.
//
// Value type; any thread. A child does not have the threads of its parent, and a lock may stay held in it, so
// that it may use nothing else of an object: calls are errors, and destructors skip everything that would
// wait.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

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
