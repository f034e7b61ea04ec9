// Limits, spaces, entries, regions and buffers: the checks that need no families.
#include <algorithm>
#include <array>
#include <set>

#include "runtime/program/sharding.h"
#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

Status checkRange(std::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return fail("{} is {}, expected {} to {}", what, value, low, high);
}

Status checkShape(const TaskProgram& program, const Buffer& buffer) {
  if (buffer.type > DType::MAX)
    return fail("buffer '{}': element type {} is not known", buffer.name, static_cast<int>(buffer.type));
  if (buffer.role > Role::MAX)
    return fail("buffer '{}': role {} is not known", buffer.name, static_cast<int>(buffer.role));
  if (buffer.shape.empty() || buffer.shape.size() > 3)
    return fail("buffer '{}' has {} dimensions, expected 1 to 3", buffer.name, buffer.shape.size());
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    const Dim& dim = buffer.shape[i];
    if (dim.extent > Extent::MAX)
      return fail("buffer '{}': extent {} of dimension {} is not known", buffer.name,
                  static_cast<int>(dim.extent), i);
    if (dim.extent == Extent::kExperts && !program.expertsDiffer())
      return fail("buffer '{}': dimension {} is the experts of a rank, but all have {}, expected that number",
                  buffer.name, i, program.maxExperts());
    const bool fixed = dim.extent == Extent::kFixed;
    if (!fixed && i > 0)
      return fail("buffer '{}': dimension {} has a run-time extent, which only the first may have",
                  buffer.name, i);
    if (!fixed && dim.size != 0)
      return fail("buffer '{}': dimension {} has a run-time extent and size {}, expected 0", buffer.name, i,
                  dim.size);
    if (fixed && (dim.size < 1 || dim.size > kMaxDim))
      return fail("buffer '{}': dimension {} is {}, expected 1 to {}", buffer.name, i, dim.size, kMaxDim);
  }
  if (buffer.sharding > Sharding::MAX)
    return fail("buffer '{}': sharding {} is not known", buffer.name, static_cast<int>(buffer.sharding));
  if (buffer.sharding != Sharding::kWhole && program.mesh.tp == 1)
    return fail("buffer '{}' is {}, but tp is 1, expected whole", buffer.name, text::word(buffer.sharding));
  if (Status status = checkSharding(buffer); !status) return status;
  if (buffer.type == DType::kF8_E4M3 && !buffer.region && buffer.role != Role::kInput)
    return fail("buffer '{}' of type {} is the caller's memory, expected one between kernels", buffer.name,
                dtypeName(buffer.type));
  const int64_t unit = unitBytes(buffer);
  if (unit < 0 || unit > kMaxBytes / largestExtent(program, buffer.shape[0].extent))
    return fail("buffer '{}' {} may need more than {} bytes", buffer.name,
                shapeText(buffer.type, buffer.shape), kMaxBytes);
  return {};
}

// The place of a buffer in the stride of its region, which is at least the buffer's unit. A row of 64 bytes
// or more begins on a cache line.
Status checkOffset(const Buffer& buffer, const Region& region, int64_t unit) {
  if (buffer.offset < 0 || buffer.offset > region.stride - unit)
    return fail("buffer '{}' of {} bytes has offset {} in region '{}' of stride {}, expected 0 to {}",
                buffer.name, unit, buffer.offset, region.name, region.stride, region.stride - unit);
  const bool wide = region.extent == Extent::kFixed || unit >= kLineBytes;
  const int64_t align = wide ? kLineBytes : dtypeBytes(buffer.type);
  if (buffer.offset % align == 0) return {};
  return fail("buffer '{}' has offset {} in region '{}', expected a multiple of {}", buffer.name,
              buffer.offset, region.name, align);
}

Status checkPlace(const TaskProgram& program, const Buffer& buffer) {
  const Extent extent = buffer.shape[0].extent;
  const bool bound = buffer.role == Role::kInput || (buffer.role == Role::kOutput && extent != Extent::kRows);
  if (bound && buffer.region)
    return fail("buffer '{}' is the caller's memory, but lies in a region", buffer.name);
  if (bound && extent == Extent::kPairs)
    return fail("buffer '{}' is the caller's memory, but has an extent the caller does not know",
                buffer.name);
  if (bound && buffer.offset != 0)
    return fail("buffer '{}' is the caller's memory, but has offset {}", buffer.name, buffer.offset);
  if (bound) return {};
  if (!inRange(buffer.region, program.regions))
    return fail("buffer '{}' lies in region {}, but the program declares {} regions", buffer.name,
                static_cast<int64_t>(buffer.region.none() ? -1 : int64_t{buffer.region.value}),
                program.regions.size());
  const Region& region = program.at(buffer.region);
  if (region.extent != extent)
    return fail("buffer '{}' {} and its region '{}' have different extents", buffer.name,
                shapeText(buffer.type, buffer.shape), region.name);
  const int64_t unit = unitBytes(buffer);
  if (region.stride < unit)
    return fail("region '{}' has stride {}, but buffer '{}' needs {} bytes", region.name, region.stride,
                buffer.name, unit);
  if (region.stride % dtypeBytes(buffer.type) != 0)
    return fail("region '{}' has stride {}, but buffer '{}' has elements of {} bytes", region.name,
                region.stride, buffer.name, dtypeBytes(buffer.type));
  if (Status status = checkOffset(buffer, region, unit); !status) return status;
  if ((buffer.role == Role::kSaved) != region.saved && buffer.role != Role::kOutput)
    return fail("buffer '{}' is {}saved, but its region '{}' is {}saved", buffer.name,
                buffer.role == Role::kSaved ? "" : "not ", region.name, region.saved ? "" : "not ");
  return {};
}

// Unified cores, or cube and vector cores.
Status checkCores(const TaskProgram& program) {
  if (program.cubeCores == 0 && program.vectorCores == 0)
    return checkRange("cores", program.cores, 1, kMaxCores);
  if (program.cores != 0)
    return fail("cores is {}, but there are {} cube cores and {} vector cores, expected 0", program.cores,
                program.cubeCores, program.vectorCores);
  Status status = checkRange("cube cores", program.cubeCores, 1, kMaxCores);
  return status ? checkRange("vector cores", program.vectorCores, 1, kMaxCores) : status;
}

}  // namespace

Status checkLimits(const TaskProgram& program) {
  struct Limit {
    std::string_view what;
    int64_t value, high;
  };
  for (const auto& [what, value, high] :
       {Limit{"ranks", program.mesh.ep, kMaxRanks},
        Limit{"tp", program.mesh.tp, kMaxRanks / std::max(program.mesh.ep, 1)},
        Limit{"experts", program.experts, kMaxExperts}, Limit{"top_k", program.topK, kMaxTopK},
        Limit{"max_tokens", program.maxTokens, kMaxTokens}})
    if (Status status = checkRange(what, value, 1, high); !status) return status;
  if (Status status = checkCores(program); !status) return status;
  if (Status status = checkRange("spare", program.spare, 0, program.experts - 1); !status) return status;
  if (program.topK > program.experts - program.spare)
    return fail("top_k is {}, but there are {} experts", program.topK, program.experts - program.spare);
  if (program.mesh.tokens > TokenHolders::MAX)
    return fail("tokens {} is not known", static_cast<int>(program.mesh.tokens));
  for (Extent extent : {Extent::kRows, Extent::kPairs})
    if (largestExtent(program, extent) > kMaxRows)
      return fail("a rank may receive {} rows, expected at most {}", largestExtent(program, extent),
                  kMaxRows);
  if (program.families.empty()) return fail("the program has no families");
  if (program.families.size() > kMaxFamilies)
    return fail("the program has {} families, expected at most {}", program.families.size(), kMaxFamilies);
  return {};
}

Status checkSpaces(const TaskProgram& program) {
  std::array<const Space*, static_cast<size_t>(SpaceKind::MAX) + 1> byKind{};
  for (const Space& space : program.spaces) {
    if (space.kind > SpaceKind::MAX)
      return fail("space '{}': kind {} is not known", space.name, static_cast<int>(space.kind));
    const Space*& place = byKind[static_cast<size_t>(space.kind)];
    if (place != nullptr)
      return fail("spaces '{}' and '{}' are both of kind {}", place->name, space.name, fullName(space.kind));
    place = &space;
    const std::string where = fmt::format("space '{}': ", space.name);
    const int64_t largest =
        space.kind == SpaceKind::kExperts || space.kind == SpaceKind::kOnce ? 1 : kMaxTokens;
    if (Status status = checkRange(where + "slot size", space.slotSize, 1, largest); !status) return status;
    if (Status status = checkRange(where + "window", space.window, 1, kMaxWindow); !status) return status;
  }
  const Space* rows = byKind[static_cast<size_t>(SpaceKind::kRows)];
  if (rows != nullptr && rows->slotSize % kRowUnit != 0)
    return fail("space '{}': slot size is {}, expected a multiple of {}", rows->name, rows->slotSize,
                kRowUnit);
  if (const Space* groups = byKind[static_cast<size_t>(SpaceKind::kGroups)]) {
    if (rows == nullptr)
      return fail("space '{}' groups slots of rows, but there is no such space", groups->name);
    if (groups->slotSize % rows->slotSize != 0 || groups->slotSize == rows->slotSize)
      return fail("space '{}' has slot size {}, expected a multiple of {} of space '{}', at least twice",
                  groups->name, groups->slotSize, rows->slotSize, rows->name);
  }
  for (SpaceKind kind : {SpaceKind::kSends, SpaceKind::kReturns}) {
    const Space* pieces = byKind[static_cast<size_t>(kind)];
    if (pieces == nullptr) continue;
    if (rows == nullptr)
      return fail("space '{}' cuts slots of rows, but there is no such space", pieces->name);
    if (pieces->slotSize != rows->slotSize)
      return fail("space '{}' has slot size {}, but is cut by space '{}' of slot size {}", pieces->name,
                  pieces->slotSize, rows->name, rows->slotSize);
  }
  return {};
}

Status checkBuffers(const TaskProgram& program) {
  for (const Region& region : program.regions) {
    if (region.extent > Extent::MAX)
      return fail("region '{}': extent {} is not known", region.name, static_cast<int>(region.extent));
    if (region.extent == Extent::kExperts && !program.expertsDiffer())
      return fail("region '{}' is measured in experts of a rank, but all have {}, expected a number of bytes",
                  region.name, program.maxExperts());
    const int64_t high = kMaxBytes / largestExtent(program, region.extent);
    if (Status status = checkRange(fmt::format("region '{}': stride", region.name), region.stride, 1, high);
        !status)
      return status;
    // Rows of 64 bytes or more begin on a cache line, and so do regions of a fixed size.
    if ((region.extent == Extent::kFixed || region.stride >= kLineBytes) && region.stride % kLineBytes != 0)
      return fail("region '{}' has stride {}, expected a multiple of {}", region.name, region.stride,
                  kLineBytes);
  }
  std::set<std::string_view> names;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.empty()) return fail("buffer {} has no name", names.size());
    if (!names.insert(buffer.name).second) return fail("two buffers have the name '{}'", buffer.name);
    if (Status status = checkShape(program, buffer); !status) return status;
    if (Status status = checkPlace(program, buffer); !status) return status;
  }
  return {};
}

namespace {

Status checkPlacement(const TaskProgram& program, const Entry& entry) {
  if (entry.placement.none()) return {};
  if (!inRange(entry.placement, program.buffers))
    return fail("entry '{}' places experts by buffer {}, but the program declares {} buffers", entry.name,
                entry.placement.value, program.buffers.size());
  const Buffer& placement = program.at(entry.placement);
  const std::vector<Dim> shape = {{Extent::kFixed, program.experts}};
  if (placement.role == Role::kInput && placement.type == DType::kI32 && placement.shape == shape) return {};
  return fail("entry '{}' places experts by buffer '{}' {}, expected an input {}", entry.name, placement.name,
              shapeText(placement.type, placement.shape), shapeText(DType::kI32, shape));
}

}  // namespace

Status checkEntries(const TaskProgram& program) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < program.entries.size(); ++i) {
    const Entry& entry = program.entries[i];
    if (entry.name.empty()) return fail("entry {} has no name", i);
    if (!names.insert(entry.name).second) return fail("two entries have the name '{}'", entry.name);
    const bool used = std::any_of(program.families.begin(), program.families.end(),
                                  [i](const Family& family) { return family.entry.value == i; });
    if (!used) return fail("entry '{}' has no families", entry.name);
    if (!entry.routes()) {
      if (entry.expertIds || entry.placement)
        return fail("entry '{}' has {} and the routing of another entry", entry.name,
                    entry.expertIds ? "expert ids" : "a placement");
      if (entry.routing.value >= i)
        return fail("entry '{}' uses the routing of entry {}, expected an earlier one than {}", entry.name,
                    entry.routing.value, i);
      if (!program.at(entry.routing).routes())
        return fail("entry '{}' uses the routing of entry '{}', which does not route itself", entry.name,
                    program.at(entry.routing).name);
      continue;
    }
    if (entry.expertIds.none()) {
      if (entry.placement) return fail("entry '{}' has a placement, but no expert ids", entry.name);
      if (program.topK == program.experts) continue;
      return fail(
          "entry '{}' has no expert ids, so that every token goes to every expert, but top_k is {} of {} "
          "experts",
          entry.name, program.topK, program.experts);
    }
    if (!inRange(entry.expertIds, program.buffers))
      return fail("entry '{}' routes by buffer {}, but the program declares {} buffers", entry.name,
                  entry.expertIds.value, program.buffers.size());
    const Buffer& ids = program.at(entry.expertIds);
    const std::vector<Dim> shape = {{Extent::kTokens, 0}, {Extent::kFixed, program.topK}};
    if (ids.role != Role::kInput || ids.type != DType::kI32 || ids.shape != shape)
      return fail("entry '{}' routes by buffer '{}' {}, expected an input {}", entry.name, ids.name,
                  shapeText(ids.type, ids.shape), shapeText(DType::kI32, shape));
    if (entry.placement.none() && program.spare != 0)
      return fail("entry '{}' has no placement, but the program has {} spare places", entry.name,
                  program.spare);
    if (Status status = checkPlacement(program, entry); !status) return status;
  }
  return {};
}

}  // namespace sluice::verify_parts
