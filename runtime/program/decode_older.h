// Lifts what files up to 1.3 store elsewhere to where it is now: activations from the flags of tilings to
// fields of their own, waits and signals from the records of tasks to their families.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/deal.h"
#include "runtime/program/program.h"
#include "runtime/program/program_generated.h"

namespace sluice {

// Whether the file is one of 1.0 to 1.3.
bool isOlder(const fbs::Program& stored);

// The tiling of a family of `op`, as an older file stores it, with the activation in fields of its own.
Tiling liftActivation(Tiling tiling, OpKind op);

// Fills waits and signals of the families of a program, which it refers to, from the lanes of an older file.
class LinkLifter {
 public:
  explicit LinkLifter(TaskProgram& program) : program_(program), first_(program.families.size()) {}

  // The tasks of one lane. Errors name task and seat: a family that the program does not declare, or tasks of
  // one family whose waits or signals differ.
  Expected<Seats> lift(const std::vector<std::vector<fbs::LinkedRecord>>& seats);

 private:
  // What is wrong with the record, or nothing.
  std::string take(const fbs::LinkedRecord& linked, const TaskRecord& task);
  std::string formatEvents(const std::vector<EventId>& ids) const;

  TaskProgram& program_;
  std::vector<std::optional<TaskRecord>> first_;  // the first task of each family
};

}  // namespace sluice
