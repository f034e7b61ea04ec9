// How a forked child ends.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

namespace sluice {

// What the child returned, or the signal that ended it as a negative number. It is killed after a minute.
inline int endOfChild(const std::function<int()>& body) {
  constexpr unsigned kDeadline = 60;  // seconds
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadline);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace sluice
