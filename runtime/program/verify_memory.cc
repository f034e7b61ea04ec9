// Accesses: every element of a buffer has one writer, and is read after it.
//
// An op writes its outputs completely (its tiles cover them, verify_ops.cc), so that a check per family is
// enough: one writer in an entry, and the tasks of it that a reader must wait for.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// Writers of a buffer over the program, in order of families.
using Writers = std::vector<std::vector<FamilyId>>;

// Whether the expert ids determine the number of elements and the meaning of each.
bool isRouted(const Buffer& buffer) {
  const Extent extent = buffer.shape[0].extent;
  return extent != Extent::kFixed && extent != Extent::kExperts;
}

// The entry that makes the slots of this entry.
EntryId findRouting(const TaskProgram& program, EntryId id) {
  return program.at(id).routes() ? id : program.at(id).routing;
}

Status addWriter(const TaskProgram& program, FamilyId id, BufferId bufferId, Writers& writers) {
  const Buffer& buffer = program.at(bufferId);
  const std::string where = fullName(program, id);
  if (buffer.role == Role::kInput)
    return fail("{} writes buffer '{}', which is an input", where, buffer.name);
  for (FamilyId other : writers[bufferId.value]) {
    const bool sameEntry = program.at(other).entry == program.at(id).entry;
    if (sameEntry || buffer.role != Role::kTemp)
      return fail("{} writes buffer '{}', which {} writes too", where, buffer.name, fullName(program, other));
  }
  const bool symmetric = buffer.region && program.at(buffer.region).symmetric;
  if (isRemote(spaceKindIn(program, id)) && !symmetric)
    return fail("{} writes buffer '{}' at other ranks, but it does not lie in a symmetric region", where,
                buffer.name);
  writers[bufferId.value].push_back(id);
  return {};
}

// A buffer that no family of the reader's entry writes.
Status checkReadAcross(const TaskProgram& program, FamilyId id, const Buffer& buffer,
                       const std::vector<FamilyId>& writers) {
  const std::string where = fullName(program, id);
  if (writers.empty()) return fail("{} reads buffer '{}', which no family writes", where, buffer.name);
  const FamilyId writer = writers.front();
  if (buffer.role != Role::kSaved)
    return fail("{} reads buffer '{}', which is not saved, but written by {}", where, buffer.name,
                fullName(program, writer));
  const EntryId here = program.at(id).entry, there = program.at(writer).entry;
  if (there > here)
    return fail("{} reads buffer '{}', which is written later by {}", where, buffer.name,
                fullName(program, writer));
  if (isRouted(buffer) && findRouting(program, here) != findRouting(program, there))
    return fail("{} reads buffer '{}', which {} writes under another routing", where, buffer.name,
                fullName(program, writer));
  return {};
}

Status checkRead(const TaskProgram& program, FamilyId id, BufferId bufferId, const Writers& writers,
                 const Coverage& coverage) {
  const Buffer& buffer = program.at(bufferId);
  if (buffer.role == Role::kInput) return {};
  const std::vector<FamilyId>& all = writers[bufferId.value];
  const auto writer = std::find_if(all.begin(), all.end(), [&](FamilyId other) {
    return program.at(other).entry == program.at(id).entry;
  });
  if (writer == all.end()) return checkReadAcross(program, id, buffer, all);
  const Scope needed = scopeToRead(spaceKindIn(program, id), buffer.shape[0].extent);
  const Scope found = coverage.covers(id, *writer);
  if (found >= needed) return {};
  return fail(
      "{} reads buffer '{}', but does not wait until family '{}' has written it for {} (it waits for {})",
      fullName(program, id), buffer.name, program.at(*writer).name, scopeText(needed), scopeText(found));
}

}  // namespace

Status checkAccesses(const TaskProgram& program, const Coverage& coverage) {
  Writers writers(program.buffers.size());
  for (uint32_t i = 0; i < program.families.size(); ++i)
    for (BufferId buffer : program.families[i].writes)
      if (buffer)
        if (Status status = addWriter(program, FamilyId{i}, buffer, writers); !status) return status;
  for (size_t i = 0; i < program.buffers.size(); ++i)
    if (program.buffers[i].role == Role::kOutput && writers[i].empty())
      return fail("no family writes the output '{}'", program.buffers[i].name);
  for (uint32_t i = 0; i < program.families.size(); ++i)
    for (BufferId buffer : program.families[i].reads)
      if (buffer)
        if (Status status = checkRead(program, FamilyId{i}, buffer, writers, coverage); !status)
          return status;
  return {};
}

}  // namespace sluice::verify_parts
