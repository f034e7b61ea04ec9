// Team: threads that run a job together.
#pragma once

namespace sluice {

// One thread at a time uses a team.
class Team {
 public:
  virtual ~Team() = default;

  // Whether a job of the calling thread can have this many threads now. Does not wait.
  virtual bool has(int workers) const = 0;

  // Calls job(context, worker) for every worker from 0 on, all at the same time, and returns true when all
  // are done. False: there were fewer threads than that, and no job was called.
  virtual bool run(int workers, void (*job)(void* context, int worker), void* context) = 0;
};

}  // namespace sluice
