#include "runtime/program/text_names.h"

#include <map>
#include <utility>

#include "runtime/program/text_words.h"

namespace sluice::text {
namespace {

// Most records are named in the program; the ones below are named in an entry.
template <class Record>
EntryId findScope(const Record*) {
  return {};
}
EntryId findScope(const EventArray* event) { return event->entry; }
EntryId findScope(const Family* family) { return family->entry; }

template <class Record>
std::vector<std::string> namesOf(const std::vector<Record>& records) {
  std::map<std::pair<EntryId, std::string_view>, int> count;
  for (const Record& record : records) ++count[{findScope(&record), record.name}];
  std::vector<std::string> names;
  for (const Record& record : records) {
    const bool unique = count[{findScope(&record), record.name}] == 1;
    names.push_back(unique ? quoteName(record.name) : "#" + std::to_string(names.size()));
  }
  return names;
}

}  // namespace

ReferenceNames::ReferenceNames(const TaskProgram& program)
    : program_(program),
      buffers_(namesOf(program.buffers)),
      regions_(namesOf(program.regions)),
      spaces_(namesOf(program.spaces)),
      entries_(namesOf(program.entries)),
      events_(namesOf(program.events)),
      families_(namesOf(program.families)) {}

std::string ReferenceNames::quotedName(const std::string& name) { return quoteName(name); }

}  // namespace sluice::text
