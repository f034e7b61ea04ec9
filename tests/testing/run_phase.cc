// run-phase PHASE [--communication-cores N] [--send-cores N] [--return-cores N] [--rule
// end|begin|end-grads|begin-grads]...   for tests: reads the text of a program from standard input, runs one
// phase of the compiler on it and prints the program that it makes. A rule is for one entry. Exit status: 0
// done, 1 an error of the text, of its ids or of the phase, 2 wrong usage.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "compiler/analysis/task_phases.h"
#include "runtime/program/text.h"

namespace sluice {
namespace {

int fail(const std::string& message, int status) {
  std::cerr << message << "\n";
  return status;
}

// By LaneRule.
constexpr std::array<std::string_view, 4> kRules = {"end", "begin", "end-grads", "begin-grads"};

bool take(std::string_view name, const std::string& value, TaskOptions& options) {
  if (name == "--communication-cores") {
    options.communication.reserved = std::atoi(value.c_str());
    return true;
  }
  if (name == "--send-cores" || name == "--return-cores") {
    int32_t& most = name == "--send-cores" ? options.communication.sends : options.communication.returns;
    most = std::atoi(value.c_str());
    return true;
  }
  const auto rule = std::find(kRules.begin(), kRules.end(), value);
  if (name != "--rule" || rule == kRules.end()) return false;
  options.laneRules.push_back(static_cast<LaneRule>(rule - kRules.begin()));
  return true;
}

// Finds ids that are no index of their table: a text may have them ("#99"), but no phase expects them.
class IdCheck {
 public:
  explicit IdCheck(const TaskProgram& program) : p_(program) {
    for (const Entry& entry : p_.entries) {
      optional("entry", entry, "buffers", entry.expertIds, p_.buffers);
      optional("entry", entry, "entries", entry.routing, p_.entries);
    }
    for (const Buffer& buffer : p_.buffers) optional("buffer", buffer, "regions", buffer.region, p_.regions);
    for (const EventArray& event : p_.events) required("event", event, "entries", event.entry, p_.entries);
    for (const Family& family : p_.families) check(family);
    for (const Lane& lane : p_.lanes) check(lane);
  }

  // The first of them, or nothing.
  const std::string& found() const { return found_; }

 private:
  void check(const Family& family) {
    required("family", family, "entries", family.entry, p_.entries);
    required("family", family, "spaces", family.space, p_.spaces);
    for (const auto* buffers : {&family.reads, &family.writes})
      for (BufferId id : *buffers) optional("family", family, "buffers", id, p_.buffers);
    for (const auto* events : {&family.waits, &family.signals})
      for (EventId id : *events) required("family", family, "events", id, p_.events);
  }
  void check(const Lane& lane) {
    required("lane", lane, "entries", lane.entry, p_.entries);
    required("lane", lane, "spaces", lane.space, p_.spaces);
    for (const std::vector<TaskRecord>& seat : lane.seats)
      for (const TaskRecord& task : seat) required("lane", lane, "families", task.family, p_.families);
  }

  template <class Owner, class Id, class Table>
  void optional(const char* kind, const Owner& owner, const char* what, Id id, const Table& table) {
    if (id) required(kind, owner, what, id, table);
  }
  template <class Owner, class Id, class Table>
  void required(const char* kind, const Owner& owner, const char* what, Id id, const Table& table) {
    if (id.value < table.size() || !found_.empty()) return;
    const std::string number = id ? "number " + std::to_string(id.value) : "none";
    found_ = std::string("error: ") + kind + " '" + owner.name + "' refers to " + number + " of the " +
             std::to_string(table.size()) + " " + what;
  }

  const TaskProgram& p_;
  std::string found_;
};

int run(const TaskPhase& phase, const TaskOptions& options) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  Expected<TaskProgram> program = parseProgram(text, "-");
  if (!program) return fail(program.error().message, 1);
  if (const IdCheck ids(*program); !ids.found().empty()) return fail(ids.found(), 1);
  const Expected<TaskProgram> made = phase.run(std::move(*program), options);
  if (!made) return fail(made.error().message, 1);
  TextSelection all;
  all.tables = true;
  std::cout << printSections(*made, all);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  const std::string_view name = argc > 1 ? argv[1] : "";
  TaskOptions options;
  for (int i = 2; i < argc; i += 2)
    if (i + 1 == argc || !take(argv[i], argv[i + 1], options))
      return fail(std::string("wrong usage at ") + argv[i], 2);
  for (const TaskPhase& phase : taskPhases())
    if (phase.name == name) return run(phase, options);
  return fail("unknown phase '" + std::string(name) + "'", 2);
}
