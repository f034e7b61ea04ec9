#include "tests/testing/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "runtime/base/child_process.h"

namespace sluice {
namespace {

constexpr char kText = '=';  // begins the line after which the body's text comes
constexpr char kLine = '>';

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void writeAll(int pipe, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(pipe, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

int runChild(int rank, int pipe, const Processes::Body& body) {
  // the handlers of the test would report a failed test from here
  for (const int signal : {SIGINT, SIGILL, SIGFPE, SIGSEGV, SIGTERM, SIGABRT}) std::signal(signal, SIG_DFL);
  std::string text;
  try {
    text = body(Child(rank, pipe));
  } catch (const std::exception& exception) {
    text = std::string("the body threw: ") + exception.what();
  } catch (...) {
    text = "the body threw";
  }
  writeAll(pipe, std::string(1, kText) + "\n" + text);
  std::fflush(nullptr);
  return 0;
}

}  // namespace

void Child::say(const std::string& line) const { writeAll(pipe_, kLine + line + "\n"); }

Processes::Processes(int count, const Body& body) {
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    const Expected<pid_t> pid = startChild([&] {
      for (const ChildState& other : children_) close(other.pipe);
      close(ends[0]);
      return runChild(rank, ends[1], body);
    });
    if (!pid) std::abort();
    close(ends[1]);
    children_.emplace_back();
    children_.back().pid = *pid;
    children_.back().pipe = ends[0];
  }
}

Processes::~Processes() {
  for (ChildState& child : children_) {
    if (!child.reaped) {
      kill(child.pid, SIGKILL);
      reap(child, true);
    }
    close(child.pipe);
  }
}

void Processes::send(int rank, int signal) const {
  if (!children_[rank].reaped) kill(children_[rank].pid, signal);
}

// False at the end of what it says, or if there is nothing in that time.
bool Processes::readSome(ChildState& child, int milliseconds) {
  pollfd poller{child.pipe, POLLIN, 0};
  if (poll(&poller, 1, milliseconds) <= 0) return false;
  char bytes[4096];
  const ssize_t count = read(child.pipe, bytes, sizeof(bytes));
  if (count <= 0) return false;
  child.unread.append(bytes, static_cast<size_t>(count));
  return true;
}

bool Processes::awaitLine(int rank, const std::string& line, double seconds) {
  ChildState& child = children_[rank];
  const double deadline = now() + seconds;
  while (true) {
    for (size_t end; (end = child.unread.find('\n')) != std::string::npos;) {
      if (child.unread[0] == kText) return false;
      const std::string said = child.unread.substr(1, end - 1);
      child.unread.erase(0, end + 1);
      if (said == line) return true;
    }
    const double open = deadline - now();
    if (open <= 0 || !readSome(child, static_cast<int>(open * 1000) + 1)) return false;
  }
}

bool Processes::reap(ChildState& child, bool block) {
  int status = 0;
  if (waitpid(child.pid, &status, block ? 0 : WNOHANG) != child.pid) return false;
  child.reaped = true;
  if (WIFEXITED(status)) child.end.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.end.signal = WTERMSIG(status);
  return true;
}

std::vector<ChildEnd> Processes::wait(double seconds) {
  const double begin = now();
  for (bool open = true; open;) {
    open = false;
    const bool over = now() - begin > seconds;
    for (ChildState& child : children_) {
      if (child.reaped) continue;
      while (readSome(child, 0)) continue;
      if (over) {
        child.end.late = true;
        kill(child.pid, SIGKILL);
      }
      if (reap(child, over)) {
        child.end.seconds = now() - begin;
      } else {
        open = true;
      }
    }
    if (open) usleep(1000);
  }
  std::vector<ChildEnd> ends;
  for (ChildState& child : children_) {
    while (readSome(child, 0)) continue;
    const std::string mark = std::string(1, kText) + "\n";
    const size_t text = child.unread.compare(0, 2, mark) == 0 ? 0 : child.unread.find("\n" + mark);
    if (text != std::string::npos) {
      child.end.returned = true;
      child.end.text = child.unread.substr(text == 0 ? 2 : text + 3);
    }
    ends.push_back(child.end);
  }
  return ends;
}

}  // namespace sluice
