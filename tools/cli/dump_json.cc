#include "tools/cli/dump_json.h"

#include <array>
#include <nlohmann/json.hpp>

#include "compiler/report/memory_report.h"
#include "runtime/program/verify.h"
#include "runtime/program/words.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

// The unit of a dimension; JSON has it in full.
std::string_view extentName(Extent extent) {
  constexpr std::array<std::string_view, 5> kNames = {"fixed", "tokens", "rows", "pairs", "experts"};
  return kNames[static_cast<size_t>(extent)];
}

template <class Tag>
int64_t index(Id<Tag> id) {
  return id.none() ? -1 : int64_t{id.value};
}

template <class Ids>
Json indices(const Ids& ids) {
  Json list = Json::array();
  for (const auto& id : ids) list.push_back(index(id));
  return list;
}

template <class T, class Function>
Json table(const std::vector<T>& values, const Function& function) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(function(value));
  return list;
}

void addHeader(const TaskProgram& p, Json& json) {
  json["name"] = p.name;
  json["target"] = p.target;
  json["options"] = p.options;
  json["graph_hash"] = p.graphHash;
  json["symbols"] =
      table(p.symbols, [](const Symbol& s) { return Json{{"name", s.name}, {"value", s.value}}; });
  json["ranks"] = p.mesh.peers();
  json["experts"] = p.experts;
  json["spare"] = p.spare;
  json["top_k"] = p.topK;
  json["max_tokens"] = p.maxTokens;
  json["cores"] = p.cores;
  json["cube_cores"] = p.cubeCores;
  json["vector_cores"] = p.vectorCores;
  json["entries"] = table(p.entries, [](const Entry& e) {
    return Json{{"name", e.name},
                {"expert_ids", index(e.expertIds)},
                {"placement", index(e.placement)},
                {"routing", index(e.routing)}};
  });
}

Json dimJson(const Dim& dim) {
  if (dim.extent == Extent::kFixed) return dim.size;
  return extentName(dim.extent);
}

void addBuffers(const TaskProgram& p, Json& json) {
  json["regions"] = table(p.regions, [](const Region& r) {
    return Json{{"name", r.name},
                {"extent", extentName(r.extent)},
                {"stride", r.stride},
                {"symmetric", r.symmetric},
                {"saved", r.saved}};
  });
  json["buffers"] = table(p.buffers, [](const Buffer& b) {
    return Json{{"name", b.name},
                {"type", dtypeName(b.type)},
                {"shape", table(b.shape, dimJson)},
                {"role", text::word(b.role)},
                {"region", index(b.region)},
                {"offset", b.offset}};
  });
}

void addSpaces(const TaskProgram& p, Json& json) {
  json["spaces"] = table(p.spaces, [](const Space& s) {
    return Json{
        {"name", s.name}, {"kind", text::word(s.kind)}, {"slot_size", s.slotSize}, {"window", s.window}};
  });
}

void addEvents(const TaskProgram& p, Json& json) {
  json["events"] = table(p.events, [](const EventArray& e) {
    return Json{{"name", e.name},
                {"entry", index(e.entry)},
                {"space", text::word(e.space)},
                {"unit", text::word(e.unit)},
                {"rule", text::word(e.rule)},
                {"factor", e.factor},
                {"remote", e.remote}};
  });
}

Json tilingJson(const Tiling& t) {
  return {{"m", t.m},
          {"n", t.n},
          {"k", t.k},
          {"tile_m", t.tileM},
          {"tile_n", t.tileN},
          {"flags", t.flags},
          {"round_a", text::word(t.roundA)},
          {"round_b", text::word(t.roundB)},
          {"alpha", t.alpha},
          {"activation", text::word(t.activation)},
          {"limit", toFloat(t.limit)}};
}

void addFamilies(const TaskProgram& p, const TextSelection& selection, Json& json) {
  json["families"] = table(p.families, [&](const Family& f) {
    Json family{{"name", f.name}, {"entry", index(f.entry)}};
    if (selection.families) {
      family["source"] = f.source;
      family["op"] = text::word(f.op);
      family["core"] = text::word(f.core);
      family["space"] = index(f.space);
      family["tiles"] = f.tiles;
      family["reads"] = indices(f.reads);
      family["writes"] = indices(f.writes);
      family["waits"] = indices(f.waits);
      family["signals"] = indices(f.signals);
    }
    if (selection.tiling) family["tiling"] = tilingJson(f.tiling);
    return family;
  });
}

Json recordJson(const TaskRecord& r) {
  return {{"family", index(r.family)}, {"slot", r.slot}, {"tile", r.tile}};
}

void addLanes(const TaskProgram& p, const TextSelection& selection, Json& json) {
  json["lanes"] = table(p.lanes, [&](const Lane& l) {
    Json lane{{"name", l.name},           {"entry", index(l.entry)},
              {"space", index(l.space)},  {"core", text::word(l.core)},
              {"priority", l.priority},   {"rotation", l.rotation},
              {"first_core", l.firstCore}};
    Json seats = Json::array();
    for (size_t core = 0; core < l.seats.size(); ++core)
      if (selection.hasSeat(l, core))
        seats.push_back(Json{{"seat", core}, {"tasks", table(l.seats[core], recordJson)}});
    lane["seats"] = std::move(seats);
    return lane;
  });
}

}  // namespace

std::string printJson(const TaskProgram& program, const TextSelection& selection) {
  Json json = Json::object();
  if (selection.header) addHeader(program, json);
  if (selection.spaces) addSpaces(program, json);
  if (selection.buffers) addBuffers(program, json);
  // the memory of a damaged program is unknown
  if (selection.buffers && verify(program)) json["memory"] = memoryJson(program, reportMemory(program));
  if (selection.events) addEvents(program, json);
  if (selection.families || selection.tiling) addFamilies(program, selection, json);
  if (selection.tasks) addLanes(program, selection, json);
  // Names come from files. Bytes that are not UTF-8 are replaced, because JSON cannot represent them;
  // everything but ASCII is escaped.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::tools
