// Verifiers of the `task` dialect: what one op says by itself, and that every name leads somewhere.

#include "compiler/dialect/task.h"
#include "llvm/ADT/StringMap.h"
#include "runtime/program/program.h"
#include "runtime/program/space_table.h"

namespace sluice::task {
namespace {

using mlir::failure;
using mlir::LogicalResult;
using mlir::Operation;
using mlir::success;

LogicalResult checkRange(Operation* op, llvm::StringRef what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return success();
  return op->emitOpError() << what << " is " << value << ", expected " << least << " to " << most;
}

// Names of one kind, each with the op that has it.
class Names {
 public:
  explicit Names(llvm::StringRef kind) : kind_(kind) {}

  LogicalResult add(Operation* op, llvm::StringRef name) {
    const auto [it, fresh] = ops_.try_emplace(name, op);
    if (fresh) return success();
    mlir::InFlightDiagnostic error = op->emitOpError()
                                     << "has the name of another " << kind_ << ", '" << name << "'";
    error.attachNote(it->second->getLoc()) << "the other is here";
    return failure();
  }

  LogicalResult check(Operation* user, llvm::StringRef name) const {
    if (ops_.contains(name)) return success();
    return user->emitOpError() << "refers to " << kind_ << " '" << name << "', which is not declared";
  }

  LogicalResult checkAll(Operation* user, std::optional<mlir::ArrayAttr> names, bool mayBeAbsent) const {
    if (!names) return success();
    for (llvm::StringRef name : names->getAsValueRange<mlir::StringAttr>())
      if (!(mayBeAbsent && name.empty()) && failed(check(user, name))) return failure();
    return success();
  }

  template <class Op>
  Op find(llvm::StringRef name) const {
    return llvm::dyn_cast_or_null<Op>(ops_.lookup(name));
  }

 private:
  llvm::StringRef kind_;
  llvm::StringMap<Operation*> ops_;
};

struct ProgramNames {
  Names spaces{"space"};
  Names regions{"region"};
  Names buffers{"buffer"};
  Names entries{"entry"};
};

int64_t coresOf(ProgramOp program, CoreKind kind) {
  if (kind == CoreKind::unified) return static_cast<int64_t>(program.getCores());
  return static_cast<int64_t>(kind == CoreKind::cube ? program.getCubeCores() : program.getVectorCores());
}

LogicalResult checkSeats(LaneOp lane, const Names& families, const Names& spaces, ProgramOp program) {
  const int64_t cores = coresOf(program, lane.getCore()), first = static_cast<int64_t>(lane.getFirstCore());
  const auto seats = static_cast<int64_t>(lane.getSeats().size());
  if (first < 0 || first >= cores || seats > cores - first)
    return lane.emitOpError() << "has " << seats << " seats from core " << first
                              << " on, but the program has " << cores << " "
                              << stringifyCoreKind(lane.getCore()) << " cores";
  llvm::SmallVector<int32_t> tiles;
  for (llvm::StringRef name : lane.getFamilies().getAsValueRange<mlir::StringAttr>())
    tiles.push_back(families.find<FamilyOp>(name).getTiles());
  const int32_t window = spaces.find<SpaceOp>(lane.getSpace()).getWindow();
  for (const auto& [core, seat] : llvm::enumerate(lane.getSeats())) {
    const llvm::ArrayRef<int32_t> cells = llvm::cast<mlir::DenseI32ArrayAttr>(seat).asArrayRef();
    if (cells.size() % 3 != 0)
      return lane.emitOpError() << "seat " << core << " has " << cells.size() << " numbers, expected triples";
    for (size_t i = 0; i < cells.size(); i += 3) {
      const bool familyFits = cells[i] >= 0 && static_cast<size_t>(cells[i]) < tiles.size();
      if (familyFits && cells[i + 1] >= 0 && cells[i + 1] < window && cells[i + 2] >= 0 &&
          cells[i + 2] < tiles[static_cast<size_t>(cells[i])])
        continue;
      return lane.emitOpError() << "task " << i / 3 << " of seat " << core << " is (" << cells[i] << ", "
                                << cells[i + 1] << ", " << cells[i + 2]
                                << "), outside its families, window or tiles";
    }
  }
  return success();
}

LogicalResult checkEntryNames(EntryOp entry, const ProgramNames& names, ProgramOp program) {
  Names events("event"), families("family"), lanes("lane");
  for (Operation& op : entry.getBody().front()) {
    if (auto event = llvm::dyn_cast<EventOp>(op)) {
      if (failed(events.add(event, event.getName()))) return failure();
    } else if (auto family = llvm::dyn_cast<FamilyOp>(op)) {
      if (failed(families.add(family, family.getName()))) return failure();
    } else if (auto lane = llvm::dyn_cast<LaneOp>(op)) {
      if (failed(lanes.add(lane, lane.getName()))) return failure();
    } else {
      return op.emitOpError("is not an event, a family or a lane");
    }
  }
  for (auto family : entry.getBody().getOps<FamilyOp>())
    if (failed(names.spaces.check(family, family.getSpace())) ||
        failed(names.buffers.checkAll(family, family.getReads(), true)) ||
        failed(names.buffers.checkAll(family, family.getWrites(), true)) ||
        failed(events.checkAll(family, family.getWaits(), false)) ||
        failed(events.checkAll(family, family.getSignals(), false)))
      return failure();
  for (auto lane : entry.getBody().getOps<LaneOp>())
    if (failed(names.spaces.check(lane, lane.getSpace())) ||
        failed(families.checkAll(lane, lane.getFamilies(), false)) ||
        failed(checkSeats(lane, families, names.spaces, program)))
      return failure();
  return success();
}

LogicalResult collect(Operation& op, ProgramNames& names) {
  if (auto space = llvm::dyn_cast<SpaceOp>(op)) return names.spaces.add(space, space.getName());
  if (auto region = llvm::dyn_cast<RegionOp>(op)) return names.regions.add(region, region.getName());
  if (auto buffer = llvm::dyn_cast<BufferOp>(op)) return names.buffers.add(buffer, buffer.getName());
  if (auto entry = llvm::dyn_cast<EntryOp>(op)) return names.entries.add(entry, entry.getName());
  return op.emitOpError("is not a space, a region, a buffer or an entry");
}

}  // namespace

LogicalResult TilingAttr::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError, int32_t, int32_t,
                                 int32_t, int32_t, int32_t, int32_t, mlir::FloatAttr alpha, ActivationKind,
                                 mlir::FloatAttr) {
  if (!alpha || (alpha.getType().isF32() && alpha.getValue().isFinite() && !alpha.getValue().isZero()))
    return success();
  return emitError() << "field alpha of a tiling is " << alpha
                     << ", expected an f32 that is finite and not 0";
}

LogicalResult ProgramOp::verify() {
  if (failed(checkRange(*this, "ranks", getRanks(), 1, kMaxRanks)) ||
      failed(checkRange(*this, "experts", getExperts(), 1, kMaxExperts)) ||
      failed(checkRange(*this, "top_k", getTopK(), 1, kMaxTopK)) ||
      failed(checkRange(*this, "max_tokens", getMaxTokens(), 1, kMaxTokens)))
    return failure();
  for (const mlir::NamedAttribute& symbol : getSymbols())
    if (!llvm::isa<mlir::IntegerAttr>(symbol.getValue()))
      return emitOpError() << "symbol '" << symbol.getName() << "' is not a number";
  if (getCubeCores() == 0 && getVectorCores() == 0) return checkRange(*this, "cores", getCores(), 1, 4096);
  if (failed(checkRange(*this, "cube cores", getCubeCores(), 1, 4096)) ||
      failed(checkRange(*this, "vector cores", getVectorCores(), 1, 4096)))
    return failure();
  return checkRange(*this, "cores beside cube and vector cores", getCores(), 0, 0);
}

LogicalResult ProgramOp::verifyRegions() {
  ProgramNames names;
  for (Operation& op : getBody().front())
    if (failed(collect(op, names))) return failure();
  for (auto buffer : getBody().getOps<BufferOp>())
    if (buffer.getRegion() && failed(names.regions.check(buffer, *buffer.getRegion()))) return failure();
  for (auto entry : getBody().getOps<EntryOp>()) {
    if (entry.getIds() && failed(names.buffers.check(entry, *entry.getIds()))) return failure();
    if (entry.getRouting() && failed(names.entries.check(entry, *entry.getRouting()))) return failure();
    if (failed(checkEntryNames(entry, names, *this))) return failure();
  }
  return success();
}

LogicalResult SpaceOp::verify() {
  if (failed(checkRange(*this, "slot", getSlot(), 1, 1 << 20))) return failure();
  return checkRange(*this, "window", getWindow(), 1, 1 << 20);
}

LogicalResult RegionOp::verify() { return checkRange(*this, "stride", getStride(), 1, int64_t{1} << 46); }

LogicalResult BufferOp::verify() {
  for (const auto& [axis, dim] : llvm::enumerate(getShape())) {
    if (dim < 0 && axis > 0) return emitOpError("has a run-time extent that is not the first dimension");
    if (failed(checkRange(*this, "a dimension", dim, kExperts, int64_t{1} << 46))) return failure();
    if (dim == 0) return emitOpError("has a dimension of 0");
  }
  if (getOffset() && !getRegion()) return emitOpError("has a place, but no region");
  if (failed(
          checkRange(*this, "the place", static_cast<int64_t>(getOffset().value_or(0)), 0, int64_t{1} << 46)))
    return failure();
  const mlir::Type type = getElementType();
  if (type.isBF16() || type.isF16() || type.isF32() || type.isInteger(32) || type.isInteger(64))
    return success();
  return emitOpError() << "has elements of " << type << ", expected bf16, f16, f32, i32 or i64";
}

LogicalResult EntryOp::verify() {
  if (getIds().has_value() != getRouting().has_value()) return success();
  return emitOpError("needs either expert ids or the routing of another entry");
}

LogicalResult EventOp::verify() {
  if (sluice::hasFactor(static_cast<sluice::ThresholdRule>(getRule())))
    return checkRange(*this, "the factor", getFactor(), 1, int64_t{1} << 40);
  return checkRange(*this, "the factor", getFactor(), 0, 0);
}

LogicalResult FamilyOp::verify() {
  if (failed(checkRange(*this, "tiles", getTiles(), 1, 1 << 24))) return failure();
  for (const std::optional<mlir::ArrayAttr>& events : {getWaits(), getSignals()})
    if (events && events->size() > 2)
      return emitOpError() << "has " << events->size()
                           << " events to wait for or to signal, expected at most 2";
  return success();
}

LogicalResult LaneOp::verify() {
  if (getFamilies().empty()) return emitOpError("runs no family");
  return checkRange(*this, "rotation", getRotation(), 0, static_cast<int64_t>(getSeats().size()) - 1);
}

}  // namespace sluice::task
