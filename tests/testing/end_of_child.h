// How a forked child ends.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "runtime/base/child_process.h"

namespace sluice {

// What the child returned; if a signal ended it, the negated signal. It is killed after a minute.
inline int endOfChild(const std::function<int()>& body) {
  constexpr unsigned kDeadline = 60;  // seconds
  const Expected<pid_t> child = startChild([&] {
    alarm(kDeadline);
    return body();
  });
  REQUIRE(child);
  const int status = awaitChild(*child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace sluice
