// Regions: buffers that share bytes of a region are never in use at the same time.
//
// A buffer has the bytes [offset, offset + unit) of every stride; if the bytes of two buffers are disjoint,
// so are the buffers, for any routing. Else, within an entry, one of them is the later one: its writer covers
// every family that reads or writes the earlier one, for the rows that they have in common. Saved buffers and
// outputs keep their content after their entry, so they share bytes with no other buffer. Temporary buffers
// of different entries are never in use at the same time.
#include <algorithm>
#include <map>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// The accesses of one entry to one buffer.
struct Use {
  BufferId buffer;
  FamilyId writer;
  std::vector<FamilyId> readers;
};

int64_t findEnd(const Buffer& buffer) { return buffer.offset + unitBytes(buffer); }

// Whether buffers of one region have bytes of its stride in common.
bool overlap(const Buffer& a, const Buffer& b) { return a.offset < findEnd(b) && b.offset < findEnd(a); }

// Whether `later` is written only after every access to `earlier`; if not, `missing` is a family that may
// still access it.
bool isAfter(const TaskProgram& program, const Use& later, const Use& earlier, const Coverage& coverage,
             FamilyId& missing) {
  const Extent extent = program.at(later.buffer).shape[0].extent;
  // Writes of other ranks may arrive as soon as the entry begins.
  missing = later.writer;
  if (!later.writer || isRemote(spaceKindIn(program, later.writer))) return false;
  const auto done = [&](FamilyId user) {
    missing = user;
    return coverage.covers(later.writer, user) >=
           scopeToReuse(spaceKindIn(program, later.writer), spaceKindIn(program, user), extent);
  };
  if (earlier.writer && !done(earlier.writer)) return false;
  for (FamilyId reader : earlier.readers) {
    missing = reader;
    if (isRemote(spaceKindIn(program, reader)) || !done(reader)) return false;
  }
  return true;
}

Status checkPair(const TaskProgram& program, const Region& region, const Use& a, const Use& b,
                 const Coverage& coverage) {
  if (!overlap(program.at(a.buffer), program.at(b.buffer))) return {};
  FamilyId missing, ignored;
  if (isAfter(program, a, b, coverage, ignored) || isAfter(program, b, a, coverage, missing)) return {};
  const std::string who = missing ? fullName(program, missing) : std::string("a family");
  return fail(
      "buffers '{}' and '{}' share region '{}', but {} may not be done with one when the other is written",
      program.at(a.buffer).name, program.at(b.buffer).name, region.name, who);
}

// Saved buffers and outputs share no bytes with another buffer. Buffers are sorted by region and offset, so
// that a buffer overlaps an earlier one exactly if it begins before the largest end so far.
Status checkOwners(const TaskProgram& program) {
  std::vector<BufferId> sorted;
  for (uint32_t i = 0; i < program.buffers.size(); ++i)
    if (program.buffers[i].region) sorted.push_back(BufferId{i});
  std::stable_sort(sorted.begin(), sorted.end(), [&](BufferId a, BufferId b) {
    const Buffer &left = program.at(a), &right = program.at(b);
    return std::pair(left.region, left.offset) < std::pair(right.region, right.offset);
  });
  BufferId furthest, furthestKept;  // of the region so far
  for (BufferId id : sorted) {
    const Buffer& buffer = program.at(id);
    const bool kept = buffer.role != Role::kTemp;
    if (furthest && program.at(furthest).region != buffer.region) furthest = furthestKept = {};
    const BufferId other = kept ? furthest : furthestKept;
    if (other && findEnd(program.at(other)) > buffer.offset)
      return fail("buffers '{}' and '{}' share region '{}', but '{}' must keep its content",
                  program.at(std::min(id, other)).name, program.at(std::max(id, other)).name,
                  program.at(buffer.region).name, kept ? buffer.name : program.at(other).name);
    if (!furthest || findEnd(buffer) > findEnd(program.at(furthest))) furthest = id;
    if (kept) furthestKept = id;  // it begins after the end of all others that are kept
  }
  return {};
}

}  // namespace

Status checkSharing(const TaskProgram& program, const Coverage& coverage) {
  if (Status status = checkOwners(program); !status) return status;

  std::map<std::pair<EntryId, RegionId>, std::map<BufferId, Use>> shared;
  for (uint32_t i = 0; i < program.families.size(); ++i) {
    const Family& family = program.families[i];
    const auto findUse = [&](BufferId id) -> Use* {
      if (!id || !program.at(id).region) return nullptr;
      Use& use = shared[{family.entry, program.at(id).region}][id];
      use.buffer = id;
      return &use;
    };
    for (BufferId id : family.reads)
      if (Use* use = findUse(id)) use->readers.push_back(FamilyId{i});
    for (BufferId id : family.writes)
      if (Use* use = findUse(id)) use->writer = FamilyId{i};
  }
  for (const auto& [key, uses] : shared)
    for (auto a = uses.begin(); a != uses.end(); ++a)
      for (auto b = std::next(a); b != uses.end(); ++b)
        if (Status status = checkPair(program, program.at(key.second), a->second, b->second, coverage);
            !status)
          return status;
  return {};
}

}  // namespace sluice::verify_parts
