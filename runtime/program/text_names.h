// How a text refers to the records of a program: by name if the name is unique in its scope, else by
// "#index".
//
// Buffers, regions, spaces and entries are named in the program; events and families in their entry.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace sluice::text {

// "forward/up_proj": an event, family or lane with its entry, for reports. Names are as they are.
template <class Record>
std::string nameInEntry(const TaskProgram& program, const Record& record) {
  return program.at(record.entry).name + "/" + record.name;
}

// Keeps a reference to the program, which must not change.
class ReferenceNames {
 public:
  explicit ReferenceNames(const TaskProgram& program);

  // "name", "#3" or "none".
  std::string of(BufferId id) const { return plain(buffers_, id); }
  std::string of(RegionId id) const { return plain(regions_, id); }
  std::string of(SpaceId id) const { return plain(spaces_, id); }
  std::string of(EntryId id) const { return plain(entries_, id); }

  // The reference from a record of entry `scope`: records of other entries have no name there.
  std::string of(EventId id, EntryId scope) const { return scoped(events_, program_.events, id, scope); }
  std::string of(FamilyId id, EntryId scope) const { return scoped(families_, program_.families, id, scope); }

  // "forward/up_proj"; the name is written even if it is not unique.
  template <class Record>
  std::string qualified(const Record& record) const {
    return of(record.entry) + "/" + quotedName(record.name);
  }

 private:
  template <class Tag>
  static std::string plain(const std::vector<std::string>& names, Id<Tag> id) {
    if (id.none()) return "none";
    return id.value < names.size() ? names[id.value] : "#" + std::to_string(id.value);
  }

  template <class Record, class Tag>
  static std::string scoped(const std::vector<std::string>& names, const std::vector<Record>& records,
                            Id<Tag> id, EntryId scope) {
    const bool visible = id.value < records.size() && records[id.value].entry == scope;
    return visible || id.none() ? plain(names, id) : "#" + std::to_string(id.value);
  }

  static std::string quotedName(const std::string& name);

  const TaskProgram& program_;
  std::vector<std::string> buffers_, regions_, spaces_, entries_, events_, families_;
};

}  // namespace sluice::text
