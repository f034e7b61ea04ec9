#include "compiler/emit/emit.h"

#include "compiler/dialect/diagnostics.h"
#include "llvm/ADT/StringMap.h"

namespace sluice {
namespace {

// Ids of one kind by name, in order of declaration.
template <class IdType>
class Index {
 public:
  void add(llvm::StringRef name) {
    const auto next = static_cast<uint32_t>(ids_.size());
    ids_[name] = IdType{next};
  }
  IdType operator[](llvm::StringRef name) const { return name.empty() ? IdType{} : ids_.lookup(name); }
  IdType operator[](std::optional<llvm::StringRef> name) const { return name ? (*this)[*name] : IdType{}; }

  std::vector<IdType> all(std::optional<mlir::ArrayAttr> names) const {
    std::vector<IdType> out;
    if (!names) return out;
    for (llvm::StringRef name : names->getAsValueRange<mlir::StringAttr>()) out.push_back((*this)[name]);
    return out;
  }

 private:
  llvm::StringMap<IdType> ids_;
};

std::string text(std::optional<llvm::StringRef> value) { return value ? value->str() : std::string(); }

DType dtypeOf(mlir::Type type) {
  if (type.isBF16()) return DType::kBF16;
  if (type.isF16()) return DType::kF16;
  if (type.isInteger(32)) return DType::kI32;
  if (type.isInteger(64)) return DType::kI64;
  return DType::kF32;
}

Tiling tilingOf(task::TilingAttr attr) {
  Tiling tiling;
  tiling.m = attr.getM();
  tiling.n = attr.getN();
  tiling.k = attr.getK();
  tiling.tileM = attr.getTileM();
  tiling.tileN = attr.getTileN();
  tiling.flags = static_cast<uint32_t>(attr.getFlags());
  if (attr.getAlpha()) tiling.alpha = attr.getAlpha().getValue().convertToFloat();
  tiling.activation = attr.getActivation();
  if (attr.getLimit()) tiling.limit = toBFloat16(attr.getLimit().getValue().convertToFloat());
  return tiling;
}

class Emitter {
 public:
  explicit Emitter(task::ProgramOp op) : op_(op) {}

  TaskProgram run() {
    header();
    for (auto space : op_.getOps<task::SpaceOp>()) addSpace(space);
    for (auto region : op_.getOps<task::RegionOp>()) addRegion(region);
    for (auto buffer : op_.getOps<task::BufferOp>()) addBuffer(buffer);
    for (auto entry : op_.getOps<task::EntryOp>()) addEntry(entry);
    return std::move(p_);
  }

 private:
  void header() {
    p_.name = op_.getName().str();
    p_.target = op_.getTarget().str();
    p_.options = text(op_.getOptions());
    p_.graphHash = static_cast<uint64_t>(op_.getGraphHash().value_or(0));
    for (const mlir::NamedAttribute& symbol : op_.getSymbols())
      p_.symbols.push_back(
          {symbol.getName().str(), llvm::cast<mlir::IntegerAttr>(symbol.getValue()).getInt()});
    p_.ranks = static_cast<int32_t>(op_.getRanks());
    p_.experts = static_cast<int32_t>(op_.getExperts());
    p_.topK = static_cast<int32_t>(op_.getTopK());
    p_.maxTokens = static_cast<int32_t>(op_.getMaxTokens());
    p_.cores = static_cast<int32_t>(op_.getCores());
    p_.cubeCores = static_cast<int32_t>(op_.getCubeCores());
    p_.vectorCores = static_cast<int32_t>(op_.getVectorCores());
  }

  void addSpace(task::SpaceOp op) {
    spaces_.add(op.getName());
    p_.spaces.push_back({op.getName().str(), static_cast<SpaceKind>(op.getKind()),
                         static_cast<int32_t>(op.getSlot()), static_cast<int32_t>(op.getWindow())});
  }

  void addRegion(task::RegionOp op) {
    regions_.add(op.getName());
    p_.regions.push_back({op.getName().str(), static_cast<Extent>(op.getExtent()),
                          static_cast<int64_t>(op.getStride()), op.getSymmetric(), op.getSaved()});
  }

  void addBuffer(task::BufferOp op) {
    buffers_.add(op.getName());
    Buffer buffer;
    buffer.name = op.getName().str();
    buffer.alias = text(op.getAlias());
    buffer.type = dtypeOf(op.getElementType());
    for (int64_t dim : op.getShape())
      buffer.shape.push_back(dim >= 0 ? Dim{Extent::kFixed, dim} : Dim{static_cast<Extent>(-dim), 0});
    buffer.role = static_cast<Role>(op.getRole());
    buffer.region = regions_[op.getRegion()];
    buffer.offset = static_cast<int64_t>(op.getOffset().value_or(0));
    p_.buffers.push_back(std::move(buffer));
  }

  void addEntry(task::EntryOp op) {
    const EntryId id{static_cast<uint32_t>(p_.entries.size())};
    p_.entries.push_back({op.getName().str(), buffers_[op.getIds()], entries_[op.getRouting()]});
    entries_.add(op.getName());
    Index<EventId> events = eventsSoFar(op, id);
    for (auto family : op.getOps<task::FamilyOp>()) addFamily(family, id, events);
    for (auto lane : op.getOps<task::LaneOp>()) addLane(lane, id);
    families_ = {};
    firstEvent_ = p_.events.size();
    firstFamily_ = p_.families.size();
  }

  // Names of events are unique in their entry only.
  Index<EventId> eventsSoFar(task::EntryOp op, EntryId entry) {
    Index<EventId> events;
    for (auto event : op.getOps<task::EventOp>()) {
      events.add(event.getName());
      p_.events.push_back({event.getName().str(), entry, static_cast<EventSpace>(event.getSpace()),
                           static_cast<EventUnit>(event.getUnit()),
                           static_cast<ThresholdRule>(event.getRule()),
                           static_cast<int64_t>(event.getFactor()), event.getRemote()});
    }
    return events;
  }

  std::vector<EventId> eventIds(const Index<EventId>& events, std::optional<mlir::ArrayAttr> names) const {
    std::vector<EventId> ids = events.all(names);
    for (EventId& id : ids) id.value += static_cast<uint32_t>(firstEvent_);
    return ids;
  }

  void addFamily(task::FamilyOp op, EntryId entry, const Index<EventId>& events) {
    families_.add(op.getName());
    Family family;
    family.name = op.getName().str();
    family.alias = text(op.getAlias());
    family.source = sourceOf(op.getLoc());
    family.entry = entry;
    family.op = static_cast<OpKind>(op.getOp());
    family.core = static_cast<CoreKind>(op.getCore());
    family.space = spaces_[op.getSpace()];
    family.tiles = static_cast<int32_t>(op.getTiles());
    family.tiling = tilingOf(op.getTiling());
    family.reads = buffers_.all(op.getReads());
    family.writes = buffers_.all(op.getWrites());
    family.waits = eventIds(events, op.getWaits());
    family.signals = eventIds(events, op.getSignals());
    p_.families.push_back(std::move(family));
  }

  void addLane(task::LaneOp op, EntryId entry) {
    std::vector<FamilyId> families = families_.all(op.getFamilies());
    for (FamilyId& id : families) id.value += static_cast<uint32_t>(firstFamily_);
    Lane lane{op.getName().str(),
              entry,
              spaces_[op.getSpace()],
              static_cast<CoreKind>(op.getCore()),
              static_cast<int32_t>(op.getPriority()),
              static_cast<int32_t>(op.getRotation()),
              {},
              static_cast<int32_t>(op.getFirstCore())};
    for (mlir::Attribute seat : op.getSeats())
      lane.seats.push_back(recordsOf(llvm::cast<mlir::DenseI32ArrayAttr>(seat).asArrayRef(), families));
    p_.lanes.push_back(std::move(lane));
  }

  std::vector<TaskRecord> recordsOf(llvm::ArrayRef<int32_t> cells,
                                    const std::vector<FamilyId>& families) const {
    std::vector<TaskRecord> records;
    records.reserve(cells.size() / 3);
    for (size_t i = 0; i + 2 < cells.size(); i += 3) {
      TaskRecord record;
      record.family = families[static_cast<size_t>(cells[i])];
      record.slot = static_cast<uint32_t>(cells[i + 1]);
      record.tile = static_cast<uint32_t>(cells[i + 2]);
      records.push_back(record);
    }
    return records;
  }

  task::ProgramOp op_;
  TaskProgram p_;
  Index<SpaceId> spaces_;
  Index<RegionId> regions_;
  Index<BufferId> buffers_;
  Index<EntryId> entries_;
  Index<FamilyId> families_;  // of the entry at hand, counted from firstFamily_
  size_t firstEvent_ = 0;
  size_t firstFamily_ = 0;
};

}  // namespace

TaskProgram emitProgram(task::ProgramOp program) { return Emitter(program).run(); }

}  // namespace sluice
