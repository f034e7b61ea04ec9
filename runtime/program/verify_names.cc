#include "runtime/base/one_line.h"
#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// The name that tensor files reserve for metadata.
constexpr std::string_view kMetadata = "__metadata__";

Status checkName(std::string_view what, std::string_view name) {
  if (isOneLine(name)) return {};
  return fail("{} '{}': found a name with control bytes or without UTF-8, expected text on one line", what,
              oneLine(name));
}

template <class T>
Status checkAll(std::string_view what, const std::vector<T>& records) {
  for (const T& record : records)
    if (Status status = checkName(what, record.name); !status) return status;
  return {};
}

}  // namespace

Status checkNames(const TaskProgram& program) {
  for (const Status& status : {checkName("program", program.name), checkName("target", program.target),
                               checkAll("symbol", program.symbols), checkAll("entry", program.entries),
                               checkAll("region", program.regions), checkAll("buffer", program.buffers),
                               checkAll("space", program.spaces), checkAll("event", program.events),
                               checkAll("family", program.families), checkAll("lane", program.lanes)})
    if (!status) return status;
  for (const Buffer& buffer : program.buffers)
    if (buffer.name == kMetadata)
      return fail("buffer '{}': found a name that tensor files reserve, expected another", buffer.name);
  return {};
}

std::string fullName(const TaskProgram& program, FamilyId id) {
  const Family& family = program.at(id);
  if (!inRange(family.entry, program.entries)) return fmt::format("family '{}'", family.name);
  return fmt::format("family '{}' of entry '{}'", family.name, program.at(family.entry).name);
}

std::string fullName(const TaskProgram& program, EventId id) {
  const EventArray& event = program.at(id);
  if (!inRange(event.entry, program.entries)) return fmt::format("event '{}'", event.name);
  return fmt::format("event '{}' of entry '{}'", event.name, program.at(event.entry).name);
}

std::string shapeText(DType type, const std::vector<Dim>& shape) {
  std::string result = fmt::format("{} [", dtypeName(type));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) result += ", ";
    result += text::word(shape[i]);
  }
  return result + ']';
}

int64_t unitBytes(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (size_t i = buffer.shape[0].extent == Extent::kFixed ? 0 : 1; i < buffer.shape.size(); ++i) {
    if (bytes > kMaxBytes / buffer.shape[i].size) return -1;
    bytes *= buffer.shape[i].size;
  }
  return bytes;
}

}  // namespace sluice::verify_parts
