// Processes: ranks as forked children of a test, with what each said and how it ended.
//
// The test has one thread when it starts them. A child runs the body and ends without the test's own end, so
// that it makes no assertions: it returns text, which the test compares. Whatever happens, no child outlives
// the object or, where the system can do that, the test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace sluice {

// In a child.
class Child {
 public:
  Child(int rank, int pipe) : rank_(rank), pipe_(pipe) {}

  int rank() const { return rank_; }
  // One line to the test, at once.
  void say(const std::string& line) const;

 private:
  int rank_;
  int pipe_;
};

struct ChildEnd {
  std::string text;       // what the body returned; empty if it did not get there
  bool returned = false;  // the body did
  int status = 0;         // of exit, if it ended by that
  int signal = 0;         // that ended it, or 0
  bool late = false;      // it was killed at the deadline
  double seconds = 0;     // from the start of the wait to the end that was seen
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

  // Reads what the rank says until that line; false if it ends, or the time is over, before.
  bool awaitLine(int rank, const std::string& line, double seconds = 30);

  // Waits for all to end; those that have not by then are killed. By rank.
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
