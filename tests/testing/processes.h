// Processes: ranks as forked children of a test, with the output and the end of each.
//
// The test must have one thread when it starts them. A child runs the body and skips the test's own exit, so
// it cannot make assertions: it returns text, which the test compares. In any case no child outlives the
// object or, if the system supports that, the test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace sluice {

// The functions for use in a child.
class Child {
 public:
  Child(int rank, int pipe) : rank_(rank), pipe_(pipe) {}

  int rank() const { return rank_; }
  // Sends one line to the test at once.
  void say(const std::string& line) const;

 private:
  int rank_;
  int pipe_;
};

struct ChildEnd {
  std::string text;       // what the body returned; empty if it did not return
  bool returned = false;  // whether the body returned
  int status = 0;         // exit status, if it exited
  int signal = 0;         // the signal that ended it, or 0
  bool late = false;      // whether it was killed at the deadline
  double seconds = 0;     // from the start of the wait to the observed end
};

class Processes {
 public:
  using Body = std::function<std::string(const Child& child)>;

  // Forks `count` children, which run the body with ranks from 0 and exit with 0.
  Processes(int count, const Body& body);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return children_[rank].pid; }
  void send(int rank, int signal) const;

  // Reads what the rank sends up to that line; returns false if it ends, or the time is over, before.
  bool awaitLine(int rank, const std::string& line, double seconds = 30);

  // Waits for all to end and kills those that have not by then. Results are by rank.
  std::vector<ChildEnd> wait(double seconds = 60);

 private:
  struct ChildState {
    pid_t pid = -1;
    int pipe = -1;
    std::string unread;  // of the pipe
    bool reaped = false;
    ChildEnd end;
  };

  bool readSome(ChildState& child, int milliseconds);
  bool reap(ChildState& child, bool block);

  std::vector<ChildState> children_;
};

}  // namespace sluice
