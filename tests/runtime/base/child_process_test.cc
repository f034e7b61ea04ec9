#include "runtime/base/child_process.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace sluice {
namespace {

TEST_CASE("a child ends with the result of its body, and runs nothing of its parent's end") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  struct AtEnd {
    int pipe;
    ~AtEnd() { CHECK(write(pipe, "x", 1) == 1); }
  };
  {
    const AtEnd atEnd{ends[1]};
    const Expected<pid_t> child = startChild([] { return 42; });
    REQUIRE(child);
    const int status = awaitChild(*child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
  }
  close(ends[1]);
  char bytes[2];
  CHECK(read(ends[0], bytes, sizeof(bytes)) == 1);  // the parent's own
  close(ends[0]);
}

TEST_CASE("a child gets its signal when its parent dies") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Expected<pid_t> parent = startChild([&] {
    const Expected<pid_t> child = startChild([] {
      alarm(60);
      return pause();
    });
    if (!child || write(ends[1], "x", 1) != 1) return 1;
    kill(getpid(), SIGKILL);
    return 1;
  });
  REQUIRE(parent);
  close(ends[1]);
  const int status = awaitChild(*parent);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  char bytes[2];
  CHECK(read(ends[0], bytes, sizeof(bytes)) == 1);
  pollfd gone{ends[0], POLLIN, 0};
  REQUIRE(poll(&gone, 1, 20000) == 1);
  CHECK(read(ends[0], bytes, sizeof(bytes)) == 0);  // the pipe closes when the child is gone, too
  close(ends[0]);
}

}  // namespace
}  // namespace sluice
