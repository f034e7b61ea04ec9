// One rank of a simulation: its events, its workers with the lanes that they serve, what they do and how
// long it takes. Private to runtime/sim.
//
// Resource type; used by one thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/cost/task_cost.h"
#include "runtime/exec/lane_cursor.h"
#include "runtime/exec/step.h"
#include "runtime/sim/sim_result.h"

namespace sluice {

// The cost of the tasks of each family, remembered while their rows are the same. Shared by all ranks.
class TaskCosts {
 public:
  TaskCosts(const TaskProgram& program, const Rates& rates)
      : program_(program), rates_(rates), last_(program.families.size()) {}

  // With the memory to itself.
  const TaskCost& alone(FamilyId family, double rows, double reuse);
  // Where cores get only these parts of their own read and write rates.
  double seconds(FamilyId family, double rows, double reuse, double readPart, double writePart) const;

  const Rates& rates() const { return rates_; }

 private:
  struct Last {
    double rows = -1;
    double reuse = 0;
    TaskCost cost;
  };
  const TaskProgram& program_;
  const Rates& rates_;
  std::vector<Last> last_;  // by family
};

class SimRank {
 public:
  // All arguments must outlive this object.
  SimRank(const Plan& plan, EntryId entry, int rank, const RoutingTables& tables, int workers, bool spans,
          TaskCosts& costs);

  struct Started {
    int worker = 0;
    SimTime end = 0;
  };
  // Gives every free worker that has a ready head a task, from `now` on. Appends them to `started`.
  void startReady(SimTime now, std::vector<Started>& started);

  // The task that `worker` runs ends: the worker is free. Returns the task.
  Task finish(int worker, SimTime now);

  // Adds to an event word.
  void add(size_t word, uint64_t n);

  // A message is on its way from or to this rank (+1), or has arrived (-1).
  void countOutstanding(int change, SimTime now);
  void countSent(int64_t bytes);

  bool anyLeft() const;

  const Step& step() const { return step_; }

  // The message of the wait that cannot end (report.h).
  std::string describeHang(Transport& transport, SimTime now);

  // After the last task.
  SimRankTimes finishTimes();
  Trace takeTrace();  // after finishTimes()
  const std::vector<SimFamily>& families() const { return families_; }

 private:
  struct Worker {
    LaneCursors cursors;
    LaneCursor* head = nullptr;  // whose task it runs; null: it is free
    bool isDone = false;         // no task is left
    SimTime since = 0;           // beginning of its task, or since when it is free
    SlotWork work;
    int64_t reads = 0;  // bytes per second that its task asks of the shared memory
    int64_t writes = 0;
  };
  struct Unmap {
    size_t bytes;
    void operator()(void* memory) const;
  };
  // Zeros. Pages that nobody touches take no memory; calloc() promises that only until something as large has
  // been freed.
  using Words = std::unique_ptr<uint64_t, Unmap>;
  static Words mapZeros(size_t bytes);

  bool tryStart(Worker& worker, SimTime now);
  void begin(Worker& worker);
  void recordWait(const Worker& worker, const LaneCursor& head, SimTime now);
  // From worker.since on; `head`: whose task it is about, or null.
  TraceSpan makeSpan(SpanKind kind, const Worker& worker, const LaneCursor* head, SimTime end) const;
  SimTime taskDuration(const Worker& worker) const;
  bool isComputing(const Task& task) const;
  bool isLeaving(const Task& task) const;
  void advance(SimTime now);

  const Plan& plan_;
  TaskCosts& costs_;
  const bool spans_;
  Words words_;
  Words needs_;  // thresholds, by line of words_; 0: no live event
  EventTable events_;
  LaneProgress progress_;
  Step step_;
  std::vector<Worker> workers_;
  bool isCompleted_ = true;  // an event has become complete since the last startReady()
  std::vector<int> freed_;   // workers that have become free since
  int64_t reads_ = 0;        // bytes per second that running tasks ask of the shared memory
  int64_t writes_ = 0;
  int outstanding_ = 0;  // messages, and sends that run
  int computing_ = 0;    // workers
  SimTime changed_ = 0;  // the last change of these two
  std::vector<SimFamily> families_;
  SimRankTimes times_;
  std::map<std::pair<uint32_t, uint32_t>, SimWait> waits_;  // by event and family
  Trace trace_;
};

}  // namespace sluice
