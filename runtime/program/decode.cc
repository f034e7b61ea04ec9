#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/base/one_line.h"
#include "runtime/program/codec.h"
#include "runtime/program/deal.h"
#include "runtime/program/decode_older.h"
#include "runtime/program/program_generated.h"

namespace sluice {
namespace {

// Upper limits of the tables: far above the needs of any program, low enough that no file causes large
// allocations.
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxOptionsBytes = 1 << 16;
constexpr size_t kMaxSymbols = 4096;
constexpr size_t kMaxEntries = 1024;
constexpr size_t kMaxRegions = 1 << 16;
constexpr size_t kMaxBuffers = 1 << 16;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxSpaces = 64;
constexpr size_t kMaxEvents = 1 << 16;
constexpr size_t kMaxFamilies = 1 << 16;
constexpr size_t kMaxOperands = 64;
constexpr size_t kMaxLanes = 1 << 16;
constexpr size_t kMaxCores = 1 << 16;
constexpr size_t kMaxRecords = 1 << 24;  // of one lane

constexpr uint32_t kMaxDepth = 4;  // Program, Lane: 2
constexpr uint32_t kMaxTables = 1 << 20;

// The first error found in the file. After it, reading continues with harmless values to the end of the
// record, so that the readers below need no error path of their own.
class Findings {
 public:
  explicit Findings(size_t fileBytes) : bytesLeft_(fileBytes) {}

  bool none() const { return !first_; }
  Error first() const { return Error{*first_}; }

  void add(std::string message) {
    if (!first_) first_ = std::move(message);
  }

  // Vectors and strings do not overlap, so all of them together are no longer than the file. A file that
  // refers to the same bytes again and again could otherwise request any amount of memory.
  bool claim(size_t bytes) {
    if (bytes > bytesLeft_) {
      add("damaged: the tables of the program overlap");
      bytesLeft_ = 0;
      return false;
    }
    bytesLeft_ -= bytes;
    return true;
  }

 private:
  std::optional<std::string> first_;
  size_t bytesLeft_;
};

// Reads the fields of one record, named in messages as "event 3 'rows_arrived'".
class Record {
 public:
  Record(Findings& findings, std::string_view kind) : findings_(findings), label_(kind) {}
  Record(Findings& findings, std::string_view kind, size_t index, const flatbuffers::String* name)
      : findings_(findings), label_(fmt::format("{} {}", kind, index)) {
    if (name && name->size() > 0 && name->size() <= kMaxNameBytes)
      label_ += fmt::format(" '{}'", name->string_view());
  }

  std::string text(const flatbuffers::String* string, std::string_view field,
                   size_t limit = kMaxNameBytes) const {
    if (!string) return fail(fmt::format("{} is missing", field)), std::string();
    if (!fits(string->size(), limit, field, "bytes") || !findings_.claim(string->size())) return {};
    return string->str();
  }

  // An enum read from a file may have any value.
  template <class E>
  E known(E found, std::string_view field) const {
    if (found <= E::MAX) return found;
    fail(fmt::format("{} {} is not known (0 to {})", field, static_cast<unsigned>(found),
                     static_cast<unsigned>(E::MAX)));
    return E{};
  }

  template <class T>
  T atMost(T found, int64_t limit, std::string_view field) const {
    if (found <= limit) return found;
    fail(fmt::format("{} is {}, expected at most {}", field, found, limit));
    return T{};
  }

  // The elements of a vector of scalars or structs, copied: in a damaged file they may be unaligned.
  template <class To, class Stored>
  std::vector<To> elements(const flatbuffers::Vector<Stored>* vector, std::string_view field,
                           size_t limit) const {
    static_assert(std::is_trivially_copyable_v<To>);
    if (!vector) return fail(fmt::format("{} are missing", field)), std::vector<To>();
    if (!fits(vector->size(), limit, field, "elements") || !findings_.claim(vector->size() * sizeof(To)))
      return {};
    std::vector<To> copy(vector->size());
    if (!copy.empty()) std::memcpy(static_cast<void*>(copy.data()), vector->Data(), copy.size() * sizeof(To));
    return copy;
  }

  void fail(const std::string& what) const { findings_.add(fmt::format("{}: {}", label_, what)); }

 private:
  bool fits(size_t found, size_t limit, std::string_view field, std::string_view unit) const {
    if (found <= limit) return true;
    fail(fmt::format("{} has {} {}, expected at most {}", field, found, unit, limit));
    return false;
  }

  Findings& findings_;
  std::string label_;
};

Symbol load(const fbs::Symbol& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"), .value = stored.value()};
}

Entry load(const fbs::Entry& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .expertIds = {stored.expert_ids()},
          .routing = {stored.routing()},
          .placement = {stored.placement()}};
}

Region load(const fbs::Region& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .extent = record.known(stored.extent(), "extent"),
          .stride = stored.stride(),
          .symmetric = stored.symmetric(),
          .saved = stored.saved()};
}

std::vector<Dim> loadShape(const fbs::Buffer& stored, const Record& record) {
  std::vector<Dim> shape;
  for (const fbs::Dim& dim : record.elements<fbs::Dim>(stored.shape(), "dimensions", kMaxDims))
    shape.push_back({.extent = record.known(dim.extent(), "extent of a dimension"),
                     .size = record.atMost(dim.size(), kMaxDim, "a dimension")});
  return shape;
}

Buffer load(const fbs::Buffer& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .type = record.known(stored.type(), "type"),
          .shape = loadShape(stored, record),
          .role = record.known(stored.role(), "role"),
          .region = {stored.region()},
          .offset = stored.offset(),
          .sharding = record.known(stored.sharding(), "sharding")};
}

Space load(const fbs::Space& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .kind = record.known(stored.kind(), "kind"),
          .slotSize = stored.slot_size(),
          .window = stored.window()};
}

EventArray load(const fbs::EventArray& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .entry = {stored.entry()},
          .space = record.known(stored.space(), "space"),
          .unit = record.known(stored.unit(), "unit"),
          .rule = record.known(stored.rule(), "threshold rule"),
          .factor = stored.factor(),
          .remote = stored.remote()};
}

Family load(const fbs::Family& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .source = record.text(stored.source(), "source"),
          .entry = {stored.entry()},
          .op = record.known(stored.op(), "op"),
          .core = record.known(stored.core(), "core kind"),
          .space = {stored.space()},
          .tiles = stored.tiles(),
          .tiling = {},  // in a table of its own
          .reads = record.elements<BufferId>(stored.reads(), "reads", kMaxOperands),
          .writes = record.elements<BufferId>(stored.writes(), "writes", kMaxOperands),
          .waits = {},
          .signals = {}};
}

// A table of tasks or, in older files, of linked records.
template <class Task, class Stored>
std::vector<std::vector<Task>> loadSeats(const fbs::Lane& stored, const flatbuffers::Vector<Stored>* tasks,
                                         std::string_view field, const Record& record) {
  const auto ends = record.elements<uint32_t>(stored.seat_ends(), "seat ends", kMaxCores);
  const auto records = record.elements<Task>(tasks, field, kMaxRecords);
  std::vector<std::vector<Task>> seats;
  seats.reserve(ends.size());
  size_t begin = 0;
  for (uint32_t end : ends) {
    if (end < begin || end > records.size()) {
      record.fail(fmt::format("seat {} ends at record {}, expected {} to {}", seats.size(), end, begin,
                              records.size()));
      return {};
    }
    seats.emplace_back(records.begin() + static_cast<ptrdiff_t>(begin),
                       records.begin() + static_cast<ptrdiff_t>(end));
    begin = end;
  }
  if (begin != records.size())
    record.fail(fmt::format("the seats end at record {}, expected {}", begin, records.size()));
  return seats;
}

Lane load(const fbs::Lane& stored, const Record& record) {
  return {.name = record.text(stored.name(), "name"),
          .entry = {stored.entry()},
          .space = {stored.space()},
          .core = record.known(stored.core(), "core kind"),
          .priority = stored.priority(),
          .rotation = stored.rotation(),
          .seats = {},
          .firstCore = stored.first_core()};
}

template <class To, class Stored>
std::vector<To> loadAll(const flatbuffers::Vector<flatbuffers::Offset<Stored>>* stored, Findings& findings,
                        std::string_view kind, std::string_view plural, size_t limit) {
  std::vector<To> all;
  if (!stored) return findings.add(fmt::format("table of {} is missing", plural)), all;
  if (stored->size() > limit)
    return findings.add(fmt::format("{} {}, expected at most {}", stored->size(), plural, limit)), all;
  if (!findings.claim(stored->size() * sizeof(uint32_t))) return all;
  all.reserve(stored->size());
  for (uint32_t i = 0; i < stored->size() && findings.none(); ++i) {
    const Stored& one = *stored->Get(i);
    all.push_back(load(one, Record(findings, kind, i, one.name())));
  }
  return all;
}

std::vector<Family> loadFamilies(const fbs::Program& stored, Findings& findings) {
  auto families = loadAll<Family>(stored.families(), findings, "family", "families", kMaxFamilies);
  const auto tilings =
      Record(findings, "program").elements<Tiling>(stored.tilings(), "tilings", kMaxFamilies);
  if (findings.none() && tilings.size() != families.size())
    findings.add(
        fmt::format("{} tilings, expected one for each of {} families", tilings.size(), families.size()));
  if (!findings.none()) return {};
  const bool older = isOlder(stored);
  for (uint32_t i = 0; i < families.size() && findings.none(); ++i) {
    const fbs::Family& family = *stored.families()->Get(i);
    const Record record(findings, "family", i, family.name());
    if (!older) families[i].waits = record.elements<EventId>(family.waits(), "waits", kMaxLinks);
    if (!older) families[i].signals = record.elements<EventId>(family.signals(), "signals", kMaxLinks);
    families[i].tiling = older ? liftActivation(tilings[i], families[i].op) : tilings[i];
    record.known(families[i].tiling.activation, "activation");
    record.known(families[i].tiling.roundA, "rounding");
    record.known(families[i].tiling.roundB, "rounding");
  }
  return families;
}

// Call after the families are loaded.
void loadTables(const fbs::Program& stored, TaskProgram& program, Findings& findings) {
  LinkLifter lifter(program);
  Dealer dealer(program);
  for (uint32_t i = 0; i < program.lanes.size() && findings.none(); ++i) {
    const fbs::Lane& lane = *stored.lanes()->Get(i);
    const Record record(findings, "lane", i, lane.name());
    std::vector<std::vector<TaskRecord>>& seats = program.lanes[i].seats;
    if (FamilyId{lane.dealt()}) {
      Expected<Seats> dealt = dealer.deal(program.lanes[i].space, FamilyId{lane.dealt()},
                                          record.atMost(lane.seats(), int64_t{kMaxCores}, "number of seats"));
      if (!dealt) record.fail(dealt.error().message);
      if (dealt) seats = std::move(*dealt);
      continue;
    }
    if (!isOlder(stored)) {
      seats = loadSeats<TaskRecord>(lane, lane.tasks(), "tasks", record);
      continue;
    }
    Expected<Seats> lifted =
        lifter.lift(loadSeats<fbs::LinkedRecord>(lane, lane.records(), "records", record));
    if (!lifted) record.fail(lifted.error().message);
    if (lifted) seats = std::move(*lifted);
  }
}

Mesh loadMesh(const fbs::Program& stored, const Record& header) {
  const int32_t ranks = header.atMost(stored.ranks(), kMaxRanks, "number of ranks");
  if (stored.tp() == 1 && stored.ep() == 0) return {ranks, 1, header.known(stored.tokens(), "tokens")};
  if (stored.tp() < 1) header.fail(fmt::format("tp is {}, expected at least 1", stored.tp()));
  if (ranks != 0)
    header.fail(fmt::format("number of ranks is {} beside ep {} and tp {}, expected 0", ranks, stored.ep(),
                            stored.tp()));
  return {header.atMost(stored.ep(), kMaxRanks, "ep"), header.atMost(stored.tp(), kMaxRanks, "tp"),
          header.known(stored.tokens(), "tokens")};
}

TaskProgram load(const fbs::Program& stored, Findings& findings) {
  const Record header(findings, "program");
  TaskProgram program;
  program.name = header.text(stored.name(), "name");
  program.target = header.text(stored.target(), "target");
  program.options = header.text(stored.options(), "options", kMaxOptionsBytes);
  program.graphHash = stored.graph_hash();
  program.symbols = loadAll<Symbol>(stored.symbols(), findings, "symbol", "symbols", kMaxSymbols);
  program.mesh = loadMesh(stored, header);
  program.experts = header.atMost(stored.places() == 0 ? stored.experts() : stored.places(), kMaxExperts,
                                  "number of experts");
  program.spare = header.atMost(stored.spare(), kMaxExperts, "number of spare places");
  program.topK = header.atMost(stored.top_k(), kMaxTopK, "experts of a token");
  program.maxTokens = header.atMost(stored.max_tokens(), kMaxTokens, "tokens of a rank");
  program.cores = header.atMost(stored.cores(), int64_t{kMaxCores}, "number of cores");
  program.cubeCores = header.atMost(stored.cube_cores(), int64_t{kMaxCores}, "number of cube cores");
  program.vectorCores = header.atMost(stored.vector_cores(), int64_t{kMaxCores}, "number of vector cores");
  program.entries = loadAll<Entry>(stored.entries(), findings, "entry", "entries", kMaxEntries);
  program.regions = loadAll<Region>(stored.regions(), findings, "region", "regions", kMaxRegions);
  program.buffers = loadAll<Buffer>(stored.buffers(), findings, "buffer", "buffers", kMaxBuffers);
  program.spaces = loadAll<Space>(stored.spaces(), findings, "space", "spaces", kMaxSpaces);
  program.events = loadAll<EventArray>(stored.events(), findings, "event", "events", kMaxEvents);
  program.families = loadFamilies(stored, findings);
  program.lanes = loadAll<Lane>(stored.lanes(), findings, "lane", "lanes", kMaxLanes);
  loadTables(stored, program, findings);
  return program;
}

Expected<TaskProgram> decodeAligned(std::span<const std::byte> bytes) {
  if (Status seal = checkSeal(bytes); !seal.ok()) return seal.error();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), kMaxDepth, kMaxTables);
  if (!fbs::VerifyProgramBuffer(verifier))
    return Error{
        "damaged: an offset of the program leads out of the file, or to something that is not a table"};
  Findings findings(bytes.size());
  TaskProgram program = load(*fbs::GetProgram(data), findings);
  if (!findings.none()) return Error{oneLine(findings.first().message)};
  return program;
}

}  // namespace

Expected<TaskProgram> decode(std::span<const std::byte> bytes) {
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kFileAlignment == 0;
  if (aligned || bytes.size() > kMaxFileBytes) return decodeAligned(bytes);
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  return decodeAligned(copy);
}

}  // namespace sluice
