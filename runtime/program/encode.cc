#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/program/codec.h"
#include "runtime/program/deal.h"
#include "runtime/program/program_generated.h"

namespace sluice {
namespace {

using flatbuffers::Offset;
using Builder = flatbuffers::FlatBufferBuilder;
template <class T>
using Tables = Offset<flatbuffers::Vector<Offset<T>>>;

// Our own struct as the struct of the schema, which has the same layout.
template <class To, class From>
To asStored(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<From>);
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}

template <class Tag>
auto storeIds(Builder& builder, const std::vector<Id<Tag>>& ids) {
  std::vector<uint32_t> values;
  values.reserve(ids.size());
  for (Id<Tag> id : ids) values.push_back(id.value);
  return builder.CreateVector(values);
}

Offset<fbs::Symbol> store(Builder& builder, const Symbol& symbol) {
  return fbs::CreateSymbol(builder, builder.CreateString(symbol.name), symbol.value);
}

Offset<fbs::Entry> store(Builder& builder, const Entry& entry) {
  const auto name = builder.CreateString(entry.name);
  return fbs::CreateEntry(builder, name, entry.expertIds.value, entry.routing.value, entry.placement.value);
}

Offset<fbs::Region> store(Builder& builder, const Region& region) {
  const auto name = builder.CreateString(region.name);
  return fbs::CreateRegion(builder, name, region.extent, region.stride, region.symmetric, region.saved);
}

Offset<fbs::Buffer> store(Builder& builder, const Buffer& buffer) {
  std::vector<fbs::Dim> shape;
  for (const Dim& dim : buffer.shape) shape.emplace_back(dim.size, dim.extent);
  const auto name = builder.CreateString(buffer.name);
  const auto alias = builder.CreateString("");
  const auto dims = builder.CreateVectorOfStructs(shape.data(), shape.size());
  return fbs::CreateBuffer(builder, name, alias, buffer.type, dims, buffer.role, buffer.region.value,
                           buffer.offset, buffer.sharding);
}

Offset<fbs::Space> store(Builder& builder, const Space& space) {
  const auto name = builder.CreateString(space.name);
  return fbs::CreateSpace(builder, name, space.kind, space.slotSize, space.window);
}

Offset<fbs::EventArray> store(Builder& builder, const EventArray& event) {
  const auto name = builder.CreateString(event.name);
  return fbs::CreateEventArray(builder, name, event.entry.value, event.space, event.unit, event.rule,
                               event.factor, event.remote);
}

Offset<fbs::Family> store(Builder& builder, const Family& family) {
  const auto name = builder.CreateString(family.name);
  const auto alias = builder.CreateString("");
  const auto source = builder.CreateString(family.source);
  const auto reads = storeIds(builder, family.reads);
  const auto writes = storeIds(builder, family.writes);
  const auto waits = storeIds(builder, family.waits);
  const auto signals = storeIds(builder, family.signals);
  return fbs::CreateFamily(builder, name, alias, source, family.entry.value, family.op, family.core,
                           family.space.value, family.tiles, reads, writes, waits, signals);
}

Offset<fbs::Lane> store(Builder& builder, const Lane& lane, FamilyId dealt) {
  std::vector<uint32_t> ends;
  std::vector<fbs::TaskRecord> tasks;
  if (!dealt)
    for (const std::vector<TaskRecord>& seat : lane.seats) {
      for (const TaskRecord& record : seat) tasks.push_back(asStored<fbs::TaskRecord>(record));
      ends.push_back(static_cast<uint32_t>(tasks.size()));
    }
  const auto name = builder.CreateString(lane.name);
  const auto seatEnds = builder.CreateVector(ends);
  const auto table = builder.CreateVectorOfStructs(tasks.data(), tasks.size());
  return fbs::CreateLane(builder, name, lane.entry.value, lane.space.value, lane.core, lane.priority,
                         lane.rotation, seatEnds, 0, lane.firstCore, table, dealt.value,
                         dealt ? static_cast<int32_t>(lane.seats.size()) : 0);
}

// Encodes every element with store(builder, element), in order: the program alone determines the bytes.
template <class T, class Element>
Tables<T> storeAll(Builder& builder, const std::vector<Element>& elements) {
  std::vector<Offset<T>> offsets;
  offsets.reserve(elements.size());
  for (const Element& element : elements) offsets.push_back(store(builder, element));
  return builder.CreateVector(offsets);
}

Tables<fbs::Lane> storeLanes(Builder& builder, const TaskProgram& program) {
  Dealer dealer(program);
  std::vector<Offset<fbs::Lane>> lanes;
  for (const Lane& lane : program.lanes) lanes.push_back(store(builder, lane, dealer.familyInLane(lane)));
  return builder.CreateVector(lanes);
}

auto storeTilings(Builder& builder, const std::vector<Family>& families) {
  std::vector<fbs::Tiling> tilings;
  tilings.reserve(families.size());
  for (const Family& family : families) tilings.push_back(asStored<fbs::Tiling>(family.tiling));
  return builder.CreateVectorOfStructs(tilings.data(), tilings.size());
}

Offset<fbs::Program> store(Builder& builder, const TaskProgram& program) {
  const fbs::Seal seal(kFormatMajor, kFormatMinor, 0, 0);  // completed by sealFile()
  const auto name = builder.CreateString(program.name);
  const auto target = builder.CreateString(program.target);
  const auto options = builder.CreateString(program.options);
  const auto symbols = storeAll<fbs::Symbol>(builder, program.symbols);
  const auto entries = storeAll<fbs::Entry>(builder, program.entries);
  const auto regions = storeAll<fbs::Region>(builder, program.regions);
  const auto buffers = storeAll<fbs::Buffer>(builder, program.buffers);
  const auto spaces = storeAll<fbs::Space>(builder, program.spaces);
  const auto events = storeAll<fbs::EventArray>(builder, program.events);
  const auto families = storeAll<fbs::Family>(builder, program.families);
  const auto tilings = storeTilings(builder, program.families);
  const auto lanes = storeLanes(builder, program);
  const Mesh& mesh = program.mesh;
  const bool isPlain = mesh.tp == 1;
  const bool isPlaced = std::any_of(program.entries.begin(), program.entries.end(),
                                    [](const Entry& entry) { return bool{entry.placement}; });
  return fbs::CreateProgram(
      builder, &seal, name, target, options, program.graphHash, symbols, isPlain ? mesh.ep : 0,
      isPlaced ? 0 : program.experts, program.topK, program.maxTokens, program.cores, entries, regions,
      buffers, spaces, events, families, tilings, lanes, program.cubeCores, program.vectorCores,
      isPlain ? 0 : mesh.ep, mesh.tp, mesh.tokens, isPlaced ? program.experts : 0, program.spare);
}

}  // namespace

std::vector<std::byte> encode(const TaskProgram& program) {
  Builder builder;
  fbs::FinishProgramBuffer(builder, store(builder, program));
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> bytes(begin, begin + builder.GetSize());
  sealFile(bytes);
  return bytes;
}

}  // namespace sluice
