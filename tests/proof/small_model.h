// An abstract executor of one entry under one routing, for exhaustive checks: tasks, the seats they stand in,
// counters, and which task touches which byte. It knows nothing of verify() and of runtime/exec.
//
// A state is how far every seat has come. A step runs the task at the head of a seat whose events are
// reached: it reads, writes and signals at once. (Two tasks that overlap in time and touch the same byte can
// run in either order, and one of these is wrong if the overlap is.) What must hold in every state that can
// be reached:
//
//   * some task can run, or all are done and every counter is exactly at its threshold
//   * a task that can run finds all it reads written, and nothing of it overwritten: when a byte is written
//     for one buffer, of any other buffer that has the byte all users are done, or none has begun
//   * what it writes or signals at another rank finds that rank not yet finished
//
// explore() looks at every reachable state. reduced() comes to the same verdict without: no step ever
// disables another (counters only grow, a task is run by its own seat only), so any two runs can be extended
// to a common one, and for every set of tasks that are held back there is one largest state, reached by
// running whatever else can run in any order. A task t can come before w if, and only if, t is in the largest
// state without w. So one run for each task that is held back (two at a time where buffers share memory)
// decides all of them.
//
// Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/program/program.h"
#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {

class SmallModel {
 public:
  // The program's ids must be in range, its tasks of spaces of their ops; else error() may say what is wrong.
  SmallModel(const TaskProgram& program, EntryId entry, const std::vector<OracleRank>& routing);

  // What is wrong in any state at all: bytes out of bounds, written twice, or read though never written.
  const std::string& error() const { return error_; }

  struct Verdict {
    std::string error;   // or ""
    int64_t states = 0;  // looked at
    bool complete = true;
  };

  // Every state, up to `limit` of them.
  Verdict explore(int64_t limit) const;
  Verdict reduced() const;

  size_t tasks() const { return tasks_.size(); }

 private:
  friend class SmallModelBuilder;

  // Bytes that the same tasks use alike.
  struct Place {
    struct Use {
      BufferId buffer;
      int writer = -1;         // task
      std::vector<int> users;  // tasks, the writer too
      bool outlives = false;   // the entry: an output, or saved
    };
    std::vector<Use> uses;
  };
  struct Task {
    int rank = 0;
    std::string name;
    std::vector<int> waits;                          // counters
    std::vector<std::pair<int, int64_t>> signals;    // counter, count
    std::vector<std::pair<int, int>> reads, writes;  // place, use
    std::vector<int> peers;                          // other ranks that it writes to or signals
  };
  // This is one state: how far the seats and tasks are.
  struct State {
    std::vector<uint8_t> positions;
    std::vector<char> done;
    std::vector<int64_t> counters;
    std::vector<int> remaining;  // tasks, by rank
  };

  State start() const;
  void run(State& state, size_t seat) const;
  State stateOf(std::string_view positions) const;  // a byte a seat
  bool isEnabled(const State& state, int task) const;
  bool isAtHead(const State& state, int task) const;
  std::string stepError(const State& state, int task) const;
  std::string endError(const State& state) const;
  // Everything that can run without the held tasks (-1: none).
  State largestWithout(int held, int other) const;
  std::string overtakenError(int held, const State& without) const;
  std::string sharedError(int writer, const State& without) const;

  std::string error_;
  std::vector<Task> tasks_;
  std::vector<std::vector<int>> seats_;
  std::vector<int64_t> thresholds_;  // by counter
  std::vector<std::string> counterNames_;
  std::vector<Place> places_;
  int ranks_ = 0;
};

}  // namespace sluice
