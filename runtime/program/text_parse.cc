#include <fmt/format.h>

#include <bit>
#include <tuple>
#include <utility>

#include "runtime/program/deal.h"
#include "runtime/program/text.h"
#include "runtime/program/text_cursor.h"
#include "runtime/program/text_scope.h"

namespace sluice {
namespace {

using text::Scope;
using text::Token;

// One function per statement; docs/PROGRAM.md has the grammar.
class Parser {
 public:
  Parser(std::string_view source, std::string_view name) : cursor_(source, name) {}

  Expected<TaskProgram> parse();

 private:
  void statement();
  void program() { program_.name = cursor_.name("the name of the program"); }
  void target() { program_.target = cursor_.name("the name of a target"); }
  void options() { program_.options = cursor_.name("the options as a string"); }
  void graph() { program_.graphHash = cursor_.number<uint64_t>("the hash of the graph"); }
  void symbol();
  void mesh();
  void limits();
  void region();
  void buffer();
  void entry();
  void space();
  void event();
  void family();
  void lane();

  std::vector<Dim> shape();
  template <class Tag>
  std::vector<Id<Tag>> references(const Scope<Tag>& scope, std::string_view what, EntryId entry = {});
  Tiling tiling();
  void dealt(Lane& lane);
  void seat(Lane& lane);

  // ENTRY '/' NAME ':' or, for lanes, without the colon.
  std::pair<EntryId, std::string> qualifiedName(std::string_view what);

  // NAME, '#' INDEX or `none`.
  template <class Tag>
  Id<Tag> reference(const Scope<Tag>& scope, std::string_view what, EntryId entry = {});

  text::Cursor cursor_;
  TaskProgram program_;
  Dealer dealer_{program_};
  Scope<BufferTag> buffers_;
  Scope<RegionTag> regions_;
  Scope<SpaceTag> spaces_;
  Scope<EntryTag> entries_;
  Scope<EventTag> events_;
  Scope<FamilyTag> families_;
};

Expected<TaskProgram> Parser::parse() {
  cursor_.expect("program");
  program();
  while (!cursor_.atEnd()) statement();
  if (cursor_.error()) return *cursor_.error();
  return std::move(program_);
}

void Parser::statement() {
  static constexpr std::pair<std::string_view, void (Parser::*)()> kStatements[] = {
      {"target", &Parser::target}, {"options", &Parser::options}, {"graph", &Parser::graph},
      {"symbol", &Parser::symbol}, {"limits", &Parser::limits},   {"region", &Parser::region},
      {"buffer", &Parser::buffer}, {"entry", &Parser::entry},     {"space", &Parser::space},
      {"event", &Parser::event},   {"family", &Parser::family},   {"lane", &Parser::lane}};
  for (const auto& [word, parse] : kStatements)
    if (cursor_.accept(word)) return (this->*parse)();
  cursor_.failExpected(
      "a statement: target, options, graph, symbol, limits, region, buffer, entry, space, event, family or "
      "lane");
}

template <class Tag>
Id<Tag> Parser::reference(const Scope<Tag>& scope, std::string_view what, EntryId entry) {
  if (cursor_.accept("none")) return {};
  if (cursor_.acceptMark('#')) return {cursor_.number<uint32_t>("an index")};
  const Token at = cursor_.token();
  const std::string name = cursor_.name(fmt::format("{}: its name, '#' and its index, or none", what));
  Id<Tag> id;
  if (cursor_.error()) return id;
  const auto result = scope.find(name, entry, id);
  if (result == Scope<Tag>::Result::kUnknown)
    cursor_.failAt(at, fmt::format("found '{}', expected {} declared above", name, what));
  if (result == Scope<Tag>::Result::kAmbiguous)
    cursor_.failAt(at, fmt::format("'{}' is not unique, expected '#' and the index of {}", name, what));
  return id;
}

std::pair<EntryId, std::string> Parser::qualifiedName(std::string_view what) {
  const EntryId entry = reference(entries_, "an entry");
  cursor_.expectMark('/');
  return {entry, cursor_.name(fmt::format("the name of {}", what))};
}

void Parser::symbol() {
  Symbol symbol;
  symbol.name = cursor_.name("the name of a symbol");
  cursor_.expectMark('=');
  symbol.value = cursor_.number<int64_t>("a number");
  program_.symbols.push_back(std::move(symbol));
}

void Parser::mesh() {
  Mesh& mesh = program_.mesh;
  cursor_.expect("ranks");
  const Token at = cursor_.token();
  const auto ranks = cursor_.number<int64_t>("a number");
  if (cursor_.accept("tp")) {
    const Token atTp = cursor_.token();
    mesh.tp = cursor_.number<int32_t>("a number");
    if (mesh.tp < 1 || ranks % mesh.tp != 0)
      return cursor_.failAt(atTp, fmt::format("tp is {}, expected a divisor of {} ranks", mesh.tp, ranks));
    cursor_.expect("tokens");
    mesh.tokens = cursor_.word<TokenHolders>("own or same");
  }
  mesh.ep = static_cast<int32_t>(ranks / mesh.tp);
  if (mesh.ep != ranks / mesh.tp) cursor_.failAt(at, fmt::format("{} ranks are too many", ranks));
}

void Parser::limits() {
  mesh();
  cursor_.expect("experts");
  program_.experts = cursor_.number<int32_t>("a number");
  if (cursor_.accept("spare")) program_.spare = cursor_.number<int32_t>("a number");
  const std::pair<std::string_view, int32_t*> fields[] = {
      {"top_k", &program_.topK}, {"max_tokens", &program_.maxTokens}, {"cores", &program_.cores}};
  for (const auto& [word, field] : fields) {
    cursor_.expect(word);
    *field = cursor_.number<int32_t>("a number");
  }
  if (!cursor_.accept("cube")) return;
  program_.cubeCores = cursor_.number<int32_t>("a number");
  cursor_.expect("vector");
  program_.vectorCores = cursor_.number<int32_t>("a number");
}

void Parser::region() {
  Region region;
  region.name = cursor_.name("the name of a region");
  cursor_.expectMark(':');
  if (cursor_.token().kind != Token::Kind::kNumber) {
    region.extent = cursor_.word<Extent>("a number or an extent");
    cursor_.expectMark('*');
  }
  region.stride = cursor_.number<int64_t>("a number of bytes");
  cursor_.expect("bytes");
  region.symmetric = cursor_.accept("symmetric");
  region.saved = cursor_.accept("saved");
  regions_.declare(region.name);
  program_.regions.push_back(std::move(region));
}

std::vector<Dim> Parser::shape() {
  std::vector<Dim> dims;
  cursor_.expectMark('[');
  while (!cursor_.atEnd() && !cursor_.token().isMark(']')) {
    if (!dims.empty()) cursor_.expectMark(',');
    Dim dim;
    if (cursor_.token().kind == Token::Kind::kNumber) {
      dim.size = cursor_.number<int64_t>("a dimension");
    } else {
      dim.extent = cursor_.word<Extent>("a number or an extent");
      if (cursor_.acceptMark(':')) dim.size = cursor_.number<int64_t>("a size");
    }
    dims.push_back(dim);
  }
  cursor_.expectMark(']');
  return dims;
}

void Parser::buffer() {
  Buffer buffer;
  buffer.name = cursor_.name("the name of a buffer");
  cursor_.expectMark(':');
  buffer.type = cursor_.word<DType>("a type");
  buffer.shape = shape();
  buffer.role = cursor_.word<Role>("a role");
  if (cursor_.accept("shard")) buffer.sharding = cursor_.word<Sharding>("a sharding");
  if (cursor_.accept("in")) buffer.region = reference(regions_, "a region");
  if (cursor_.accept("at")) buffer.offset = cursor_.number<int64_t>("a number of bytes");
  buffers_.declare(buffer.name);
  program_.buffers.push_back(std::move(buffer));
}

void Parser::entry() {
  Entry entry;
  entry.name = cursor_.name("the name of an entry");
  while (true) {
    if (cursor_.accept("placed")) {
      cursor_.expect("by");
      entry.placement = reference(buffers_, "a buffer");
    } else if (!cursor_.accept("routed")) {
      break;
    } else if (cursor_.accept("as")) {
      entry.routing = reference(entries_, "an entry");
    } else {
      cursor_.expect("by");
      entry.expertIds = reference(buffers_, "a buffer");
    }
  }
  entries_.declare(entry.name);
  program_.entries.push_back(std::move(entry));
}

void Parser::space() {
  Space space;
  space.name = cursor_.name("the name of a space");
  cursor_.expectMark(':');
  space.kind = cursor_.word<SpaceKind>("what the space counts");
  cursor_.expect("of");
  space.slotSize = cursor_.number<int32_t>("the size of a slot");
  cursor_.expect("window");
  space.window = cursor_.number<int32_t>("a number of slots");
  spaces_.declare(space.name);
  program_.spaces.push_back(std::move(space));
}

void Parser::event() {
  EventArray event;
  std::tie(event.entry, event.name) = qualifiedName("an event array");
  cursor_.expectMark(':');
  cursor_.expectMark('[');
  event.space = cursor_.word<EventSpace>("a space of events");
  cursor_.expectMark(']');
  cursor_.expect("counts");
  event.unit = cursor_.word<EventUnit>("a unit");
  cursor_.expect("to");
  event.rule = cursor_.word<ThresholdRule>("a threshold rule");
  if (cursor_.acceptMark('(')) {
    event.factor = cursor_.number<int64_t>("a factor");
    cursor_.expectMark(')');
  }
  event.remote = cursor_.accept("remote");
  events_.declare(event.name, event.entry);
  program_.events.push_back(std::move(event));
}

template <class Tag>
std::vector<Id<Tag>> Parser::references(const Scope<Tag>& scope, std::string_view what, EntryId entry) {
  std::vector<Id<Tag>> ids;
  do ids.push_back(reference(scope, what, entry));
  while (cursor_.acceptMark(','));
  return ids;
}

Tiling Parser::tiling() {
  Tiling tiling;
  const auto read = [&](auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, float>) {
      field = cursor_.decimal("a number");
    } else if constexpr (std::is_same_v<Field, BFloat16>) {
      field.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(cursor_.decimal("a number")) >> 16);
    } else if constexpr (std::is_same_v<Field, ActivationKind>) {
      field = cursor_.word<ActivationKind>("an activation");
    } else if constexpr (std::is_same_v<Field, Rounding>) {
      field = cursor_.word<Rounding>("a rounding");
    } else {
      field = static_cast<Field>(cursor_.number<int32_t>("a number"));
    }
  };
  text::forTilingFields(tiling, [&](const char* name, auto& field) {
    if (!cursor_.accept(name)) return;
    cursor_.expectMark('=');
    read(field);
  });
  return tiling;
}

void Parser::family() {
  Family family;
  std::tie(family.entry, family.name) = qualifiedName("a family");
  cursor_.expectMark(':');
  family.op = cursor_.word<OpKind>("an op");
  cursor_.expect("over");
  family.space = reference(spaces_, "a space");
  cursor_.expect("tiles");
  family.tiles = cursor_.number<int32_t>("a number of tiles");
  cursor_.expect("on");
  family.core = cursor_.word<CoreKind>("a kind of core");
  if (cursor_.accept("source")) family.source = cursor_.name("a place in a source");
  if (cursor_.accept("reads")) family.reads = references(buffers_, "a buffer");
  if (cursor_.accept("writes")) family.writes = references(buffers_, "a buffer");
  const auto events = [&] { return references(events_, "an event of the entry", family.entry); };
  if (cursor_.accept("waits")) family.waits = events();
  if (cursor_.accept("signals")) family.signals = events();
  if (cursor_.accept("tiling")) family.tiling = tiling();
  families_.declare(family.name, family.entry);
  program_.families.push_back(std::move(family));
}

void Parser::lane() {
  Lane lane;
  std::tie(lane.entry, lane.name) = qualifiedName("a lane");
  cursor_.expect("over");
  lane.space = reference(spaces_, "a space");
  cursor_.expect("on");
  lane.core = cursor_.word<CoreKind>("a kind of core");
  if (cursor_.accept("from")) lane.firstCore = cursor_.number<int32_t>("the number of a core");
  cursor_.expect("priority");
  lane.priority = cursor_.number<int32_t>("a priority");
  cursor_.expect("rotation");
  lane.rotation = cursor_.number<int32_t>("a number of seats");
  if (cursor_.accept("dealt")) dealt(lane);
  while (cursor_.accept("seat")) seat(lane);
  program_.lanes.push_back(std::move(lane));
}

void Parser::dealt(Lane& lane) {
  const Token at = cursor_.token();
  const FamilyId family = reference(families_, "a family of the entry", lane.entry);
  cursor_.expect("to");
  const auto seats = cursor_.number<uint16_t>("a number of seats");
  cursor_.expect("seats");
  if (cursor_.error()) return;
  Expected<Seats> dealt = dealer_.deal(lane.space, family, seats);
  if (!dealt) return cursor_.failAt(at, fmt::format("lane '{}' {}", lane.name, dealt.error().message));
  lane.seats = std::move(*dealt);
}

void Parser::seat(Lane& lane) {
  const Token at = cursor_.token();
  const auto index = cursor_.number<uint32_t>("the number of a seat");
  if (!cursor_.error() && index != lane.seats.size())
    cursor_.failAt(at, fmt::format("found seat {}, expected seat {}", index, lane.seats.size()));
  cursor_.expectMark(':');
  std::vector<TaskRecord>& seat = lane.seats.emplace_back();
  while (!cursor_.atEnd()) {
    const Token& token = cursor_.token();
    if (token.kind == Token::Kind::kWord && token.text != "none" && text::isReserved(token.text)) return;
    TaskRecord record;
    record.family = reference(families_, "a family of the entry", lane.entry);
    cursor_.expectMark('[');
    record.slot = cursor_.number<uint32_t>("a slot");
    cursor_.expectMark(',');
    record.tile = cursor_.number<uint32_t>("a tile");
    cursor_.expectMark(']');
    seat.push_back(record);
  }
}

}  // namespace

Expected<TaskProgram> parseProgram(std::string_view text, std::string_view name) {
  return Parser(text, name).parse();
}

}  // namespace sluice
