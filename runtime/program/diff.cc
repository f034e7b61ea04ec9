#include "runtime/program/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "runtime/program/codec.h"
#include "runtime/program/text_names.h"
#include "runtime/program/text_words.h"

namespace sluice {
namespace {

using text::quote;
using text::quoteName;
using text::word;

constexpr size_t kShownBytes = 200;  // of one value

struct Field {
  std::string name;  // empty: the record itself
  std::string value;
};

// A record in the form in which it is compared: fields of the same name are compared.
struct Item {
  std::string path;
  std::vector<Field> fields;
};

// 1. A program becomes a list of items, each with a path that no other item has.
class Flattener {
 public:
  explicit Flattener(const TaskProgram& program) : program_(program), names_(program) {}

  std::vector<Item> items();

 private:
  void add(std::string path, std::vector<Field> fields);
  void header();
  void memory();
  void schedule();
  void lane(const Lane& lane);
  template <class Tag, class... Scope>
  std::string list(const std::vector<Id<Tag>>& ids, Scope... scope) const;
  std::string task(const TaskRecord& record, EntryId entry) const;

  const TaskProgram& program_;
  const text::ReferenceNames names_;
  std::vector<Item> items_;
  std::map<std::string, int> count_;
};

// The second record of a name becomes "name (2)".
void Flattener::add(std::string path, std::vector<Field> fields) {
  const int count = ++count_[path];
  if (count > 1) path += fmt::format(" ({})", count);
  items_.push_back({std::move(path), std::move(fields)});
}

std::vector<Item> Flattener::items() {
  header();
  memory();
  schedule();
  for (const Lane& one : program_.lanes) lane(one);
  return std::move(items_);
}

void Flattener::header() {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  add("program", {{"name", quoteName(program_.name)},
                  {"target", quoteName(program_.target)},
                  {"options", quote(program_.options)},
                  {"graph", fmt::format("0x{:016x}", program_.graphHash)},
                  {"ranks", number(int64_t{program_.mesh.ep} * program_.mesh.tp)},
                  {"tp", number(program_.mesh.tp)},
                  {"tokens", word(program_.mesh.tokens)},
                  {"experts", number(program_.experts)},
                  {"spare", number(program_.spare)},
                  {"top_k", number(program_.topK)},
                  {"max_tokens", number(program_.maxTokens)},
                  {"cores", number(program_.cores)},
                  {"cube cores", number(program_.cubeCores)},
                  {"vector cores", number(program_.vectorCores)}});
  for (const Symbol& symbol : program_.symbols)
    add("symbol " + quoteName(symbol.name), {{"", number(symbol.value)}});
}

void Flattener::memory() {
  for (const Region& region : program_.regions)
    add("region " + quoteName(region.name), {{"", text::regionText(region)}});
  for (const Buffer& buffer : program_.buffers)
    add("buffer " + quoteName(buffer.name), {{"type", text::typeText(buffer)},
                                             {"role", word(buffer.role)},
                                             {"sharding", word(buffer.sharding)},
                                             {"region", names_.of(buffer.region)},
                                             {"offset", fmt::format("{}", buffer.offset)}});
}

void Flattener::schedule() {
  for (const Entry& entry : program_.entries)
    add("entry " + quoteName(entry.name), {{"routed by", names_.of(entry.expertIds)},
                                           {"placed by", names_.of(entry.placement)},
                                           {"routed as", names_.of(entry.routing)}});
  for (const Space& space : program_.spaces)
    add("space " + quoteName(space.name), {{"kind", word(space.kind)},
                                           {"slot size", fmt::format("{}", space.slotSize)},
                                           {"window", fmt::format("{}", space.window)}});
  for (const EventArray& event : program_.events)
    add("event " + names_.qualified(event), {{"", text::eventText(event)}});
  for (const Family& family : program_.families)
    add("family " + names_.qualified(family), {{"op", word(family.op)},
                                               {"space", names_.of(family.space)},
                                               {"tiles", fmt::format("{}", family.tiles)},
                                               {"core", word(family.core)},
                                               {"reads", list(family.reads)},
                                               {"writes", list(family.writes)},
                                               {"waits", list(family.waits, family.entry)},
                                               {"signals", list(family.signals, family.entry)},
                                               {"tiling", text::tilingText(family.tiling)},
                                               {"source", quote(family.source)}});
}

void Flattener::lane(const Lane& lane) {
  std::vector<Field> fields = {{"space", names_.of(lane.space)},
                               {"core", word(lane.core)},
                               {"first core", fmt::format("{}", lane.firstCore)},
                               {"priority", fmt::format("{}", lane.priority)},
                               {"rotation", fmt::format("{}", lane.rotation)},
                               {"seats", fmt::format("{}", lane.seats.size())}};
  for (size_t seat = 0; seat < lane.seats.size(); ++seat)
    for (size_t i = 0; i < lane.seats[seat].size(); ++i)
      fields.push_back({fmt::format("seat {} task {}", seat, i), task(lane.seats[seat][i], lane.entry)});
  add("lane " + names_.qualified(lane), std::move(fields));
}

template <class Tag, class... Scope>
std::string Flattener::list(const std::vector<Id<Tag>>& ids, Scope... scope) const {
  std::string list;
  for (Id<Tag> id : ids) list += (list.empty() ? "" : ", ") + names_.of(id, scope...);
  return list;
}

std::string Flattener::task(const TaskRecord& record, EntryId entry) const {
  return fmt::format("{}[{},{}]", names_.of(record.family, entry), record.slot, record.tile);
}

// 2. Items and then fields of the same name are compared.
class Differences {
 public:
  std::vector<std::string> find(const std::vector<Item>& a, const std::vector<Item>& b);

 private:
  void add(std::string line) {
    if (++count_ <= kMaxDifferences) lines_.push_back(std::move(line));
  }
  void compare(const std::string& path, const std::vector<Field>& a, const std::vector<Field>& b);
  void compareOrder(const std::vector<Item>& a, const std::vector<Item>& b);

  std::vector<std::string> lines_;
  size_t count_ = 0;
};

std::string shown(const std::string* value) {
  if (!value || value->empty()) return "(nothing)";
  return value->size() > kShownBytes ? value->substr(0, kShownBytes) + "..." : *value;
}

std::map<std::string_view, const std::string*> byName(const std::vector<Field>& fields) {
  std::map<std::string_view, const std::string*> values;
  for (const Field& field : fields) values[field.name] = &field.value;
  return values;
}

void Differences::compare(const std::string& path, const std::vector<Field>& a, const std::vector<Field>& b) {
  const auto place = [&](const Field& field) { return field.name.empty() ? path : path + " " + field.name; };
  const auto inA = byName(a);
  const auto inB = byName(b);
  for (const Field& field : a) {
    const auto other = inB.find(field.name);
    const std::string* value = other == inB.end() ? nullptr : other->second;
    if (!value || *value != field.value)
      add(fmt::format("{}: {} -> {}", place(field), shown(&field.value), shown(value)));
  }
  for (const Field& field : b)
    if (!inA.contains(field.name)) add(fmt::format("{}: (nothing) -> {}", place(field), shown(&field.value)));
}

// If all records are equal, a different order is still a difference: ids are positions.
void Differences::compareOrder(const std::vector<Item>& a, const std::vector<Item>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].path == b[i].path) continue;
    return add(fmt::format("order of the records: {} -> {}", a[i].path, b[i].path));
  }
}

std::vector<std::string> Differences::find(const std::vector<Item>& a, const std::vector<Item>& b) {
  std::map<std::string_view, const Item*> inA, inB;
  for (const Item& item : a) inA[item.path] = &item;
  for (const Item& item : b) inB[item.path] = &item;
  for (const Item& item : a) {
    const auto other = inB.find(item.path);
    if (other == inB.end())
      add(fmt::format("{}: only in the first", item.path));
    else
      compare(item.path, item.fields, other->second->fields);
  }
  for (const Item& item : b)
    if (!inA.contains(item.path)) add(fmt::format("{}: only in the second", item.path));
  if (count_ == 0) compareOrder(a, b);
  if (count_ > kMaxDifferences)
    lines_.push_back(fmt::format("and {} more differences", count_ - kMaxDifferences));
  return std::move(lines_);
}

}  // namespace

std::vector<std::string> diffPrograms(const TaskProgram& a, const TaskProgram& b) {
  if (a == b) return {};
  std::vector<std::string> lines = Differences().find(Flattener(a).items(), Flattener(b).items());
  // References by name can hide that a name refers to another record; the programs still differ. A NaN,
  // although unequal to itself, is not a difference.
  if (lines.empty() && encode(a) != encode(b))
    lines.push_back("the programs refer to records of the same name that are different records");
  return lines;
}

}  // namespace sluice
