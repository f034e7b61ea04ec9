// Regions: buffers that share one do not meet.
//
// In one entry, of two buffers that share a region one is the later: its writer covers every family that
// reads or writes the earlier one, for the rows they have in common. What a saved buffer or an output holds
// outlasts its entry: they share with nobody. Temporary buffers of different entries never meet.
#include <algorithm>
#include <map>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// What one entry does with one buffer.
struct Use {
  BufferId buffer;
  FamilyId writer;
  std::vector<FamilyId> readers;
};

// How much of family `user` must be done before `writer` may reuse the memory that both know as elements
// of this extent. kNone: no event can tell, for a rank never learns when its own sends and returns are
// done with what they read.
Scope reuseScope(SpaceKind user, Extent extent) {
  switch (extent) {
    case Extent::kRows:
      return user == SpaceKind::kExperts ? Scope::kExpert : Scope::kSlot;
    case Extent::kTokens:
      return user == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
    case Extent::kPairs:
    case Extent::kFixed:
      return Scope::kAll;  // elements of different buffers do not lie alike
  }
  return Scope::kAll;
}

// Whether `later` is written when all of `earlier` is done with; else the family that may not be done.
bool isBehind(const TaskProgram& program, const Use& later, const Use& earlier, const Coverage& coverage,
              FamilyId& missing) {
  const Extent extent = program.at(later.buffer).shape[0].extent;
  // What is written by other ranks may arrive as soon as the entry begins.
  missing = later.writer;
  if (!later.writer || writesRemotely(kindOf(program, later.writer))) return false;
  const auto done = [&](FamilyId user) {
    missing = user;
    return coverage.covers(later.writer, user) >= reuseScope(kindOf(program, user), extent);
  };
  if (earlier.writer && !done(earlier.writer)) return false;
  for (FamilyId reader : earlier.readers) {
    missing = reader;
    if (writesRemotely(kindOf(program, reader)) || !done(reader)) return false;
  }
  return true;
}

Status checkPair(const TaskProgram& program, const Region& region, const Use& a, const Use& b,
                 const Coverage& coverage) {
  FamilyId missing, ignored;
  if (isBehind(program, a, b, coverage, ignored) || isBehind(program, b, a, coverage, missing)) return {};
  const std::string who = missing ? nameOf(program, missing) : std::string("a family");
  return fail(
      "buffers '{}' and '{}' share region '{}', but {} may not be done with one when the other is written",
      program.at(a.buffer).name, program.at(b.buffer).name, region.name, who);
}

// Regions of saved buffers and outputs have no other buffer.
Status checkOwners(const TaskProgram& program) {
  std::vector<BufferId> owner(program.regions.size());
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (!buffer.region) continue;
    BufferId& first = owner[buffer.region.value];
    if (first.none()) {
      first = BufferId{i};
      continue;
    }
    for (const Buffer* one : {&buffer, &program.at(first)})
      if (one->role != Role::kTemp)
        return fail("buffers '{}' and '{}' share region '{}', but '{}' must keep its content",
                    program.at(first).name, buffer.name, program.at(buffer.region).name, one->name);
  }
  return {};
}

}  // namespace

Status checkSharing(const TaskProgram& program, const Coverage& coverage) {
  if (Status status = checkOwners(program); !status) return status;

  std::map<std::pair<EntryId, RegionId>, std::map<BufferId, Use>> shared;
  for (uint32_t i = 0; i < program.families.size(); ++i) {
    const Family& family = program.families[i];
    const auto useOf = [&](BufferId id) -> Use* {
      if (!id || !program.at(id).region) return nullptr;
      Use& use = shared[{family.entry, program.at(id).region}][id];
      use.buffer = id;
      return &use;
    };
    for (BufferId id : family.reads)
      if (Use* use = useOf(id)) use->readers.push_back(FamilyId{i});
    for (BufferId id : family.writes)
      if (Use* use = useOf(id)) use->writer = FamilyId{i};
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
