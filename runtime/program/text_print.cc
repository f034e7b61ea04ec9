#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "runtime/program/deal.h"
#include "runtime/program/text.h"
#include "runtime/program/text_names.h"
#include "runtime/program/text_words.h"

namespace sluice {
namespace {

using text::quoteName;
using text::word;

class Printer {
 public:
  Printer(const TaskProgram& program, const TextSelection& selection)
      : program_(program), selection_(selection), names_(program) {}

  std::string print() {
    if (selection_.header) header();
    if (selection_.buffers) memory();
    if (selection_.header) entries();
    if (selection_.spaces) spaces();
    if (selection_.events) events();
    if (selection_.families || selection_.tiling) families();
    if (selection_.tasks) lanes();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  // A blank line between sections.
  void begin(bool empty) {
    if (!empty && !out_.empty()) out_ += '\n';
  }

  void header();
  void memory();
  void entries();
  void spaces();
  void events();
  void families();
  void family(const Family& family);
  void lanes();
  void lane(const Lane& lane, FamilyId dealt);
  void seat(const Lane& lane, size_t index);

  template <class... Scope>
  void list(const char* word, const auto& ids, Scope... scope);

  const TaskProgram& program_;
  const TextSelection& selection_;
  const text::ReferenceNames names_;
  std::string out_;
};

void Printer::header() {
  put("program {}\n", quoteName(program_.name));
  put("target {}\n", quoteName(program_.target));
  put("options {}\n", text::quote(program_.options));
  put("graph 0x{:016x}\n", program_.graphHash);
  for (const Symbol& symbol : program_.symbols) put("symbol {} = {}\n", quoteName(symbol.name), symbol.value);
  const Mesh& mesh = program_.mesh;
  put("limits ranks {}", int64_t{mesh.ep} * mesh.tp);
  if (mesh.tp != 1 || mesh.tokens != TokenHolders::kOwn) put(" tp {} tokens {}", mesh.tp, word(mesh.tokens));
  put(" experts {}", program_.experts);
  if (program_.spare != 0) put(" spare {}", program_.spare);
  put(" top_k {} max_tokens {} cores {}", program_.topK, program_.maxTokens, program_.cores);
  if (program_.cubeCores != 0 || program_.vectorCores != 0)
    put(" cube {} vector {}", program_.cubeCores, program_.vectorCores);
  put("\n");
}

void Printer::memory() {
  begin(program_.regions.empty());
  for (const Region& region : program_.regions)
    put("region {} : {}\n", quoteName(region.name), text::regionText(region));
  begin(program_.buffers.empty());
  for (const Buffer& buffer : program_.buffers) {
    put("buffer {} : {} {}", quoteName(buffer.name), text::typeText(buffer), word(buffer.role));
    if (buffer.sharding != Sharding::kWhole) put(" shard {}", word(buffer.sharding));
    if (buffer.region) put(" in {}", names_.of(buffer.region));
    if (buffer.offset != 0) put(" at {}", buffer.offset);
    put("\n");
  }
}

void Printer::entries() {
  begin(program_.entries.empty());
  for (size_t i = 0; i < program_.entries.size(); ++i) {
    const Entry& entry = program_.entries[i];
    put("entry {}", quoteName(entry.name));
    if (entry.expertIds) put(" routed by {}", names_.of(entry.expertIds));
    if (entry.placement) put(" placed by {}", names_.of(entry.placement));
    // A name can be used only after its record.
    if (entry.routing)
      put(" routed as {}",
          entry.routing.value < i ? names_.of(entry.routing) : fmt::format("#{}", entry.routing.value));
    put("\n");
  }
}

void Printer::spaces() {
  begin(program_.spaces.empty());
  for (const Space& space : program_.spaces)
    put("space {} : {} of {} window {}\n", quoteName(space.name), word(space.kind), space.slotSize,
        space.window);
}

void Printer::events() {
  begin(program_.events.empty());
  for (const EventArray& event : program_.events)
    put("event {} : {}\n", names_.qualified(event), text::eventText(event));
}

void Printer::families() {
  begin(program_.families.empty());
  for (const Family& one : program_.families) family(one);
}

void Printer::family(const Family& family) {
  const std::string tiling = text::tilingText(family.tiling);
  if (!selection_.families) {
    put("tiling {} : {}\n", names_.qualified(family), tiling);
    return;
  }
  put("family {} : {} over {} tiles {} on {}", names_.qualified(family), word(family.op),
      names_.of(family.space), family.tiles, word(family.core));
  if (!family.source.empty()) put(" source {}", quoteName(family.source));
  put("\n");
  list("reads", family.reads);
  list("writes", family.writes);
  list("waits", family.waits, family.entry);
  list("signals", family.signals, family.entry);
  if (selection_.tiling && !tiling.empty()) put("  tiling {}\n", tiling);
}

// "  reads a, b"; nothing if there are none.
template <class... Scope>
void Printer::list(const char* word, const auto& ids, Scope... scope) {
  for (size_t i = 0; i < ids.size(); ++i)
    put("{}{}", i == 0 ? fmt::format("  {} ", word) : ", ", names_.of(ids[i], scope...));
  if (!ids.empty()) put("\n");
}

void Printer::lanes() {
  Dealer dealer(program_);
  const bool whole = selection_.core < 0 && !selection_.tables;
  for (const Lane& one : program_.lanes) {
    bool shown = selection_.core < 0;
    for (size_t seat = 0; seat < one.seats.size(); ++seat) shown = shown || selection_.hasSeat(one, seat);
    if (!shown) continue;
    begin(false);
    lane(one, whole ? dealer.familyInLane(one) : FamilyId{});
  }
}

void Printer::lane(const Lane& lane, FamilyId dealt) {
  put("lane {} over {} on {}", names_.qualified(lane), names_.of(lane.space), word(lane.core));
  if (lane.firstCore != 0) put(" from {}", lane.firstCore);
  put(" priority {} rotation {}\n", lane.priority, lane.rotation);
  if (dealt) return put("  dealt {} to {} seats\n", names_.of(dealt, lane.entry), lane.seats.size());
  for (size_t i = 0; i < lane.seats.size(); ++i)
    if (selection_.hasSeat(lane, i)) seat(lane, i);
}

void Printer::seat(const Lane& lane, size_t index) {
  put("  seat {}:", index);
  for (const TaskRecord& record : lane.seats[index])
    put(" {}[{},{}]", names_.of(record.family, lane.entry), record.slot, record.tile);
  put("\n");
}

}  // namespace

std::string printSections(const TaskProgram& program, const TextSelection& selection) {
  return Printer(program, selection).print();
}

std::string printProgram(const TaskProgram& program) { return printSections(program, {}); }

}  // namespace sluice
