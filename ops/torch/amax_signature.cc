#include "ops/torch/amax_signature.h"

#include <fmt/format.h>

#include <map>

#include "ops/torch/layer_signature.h"

namespace sluice {
namespace {

constexpr std::string_view kUsed = "_amax_used", kFound = "_amax";

// What stands before a suffix; empty if the name has no such suffix.
std::string beforeSuffix(const std::string& name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
}

class AmaxReader {
 public:
  AmaxReader(const TaskProgram& program, int rank) : program_(program), rank_(rank) {}

  Expected<std::vector<AmaxSignature>> read() {
    for (uint32_t e = 0; e < program_.entries.size(); ++e) {
      const bool isForward = program_.entries[e].name == "forward";
      for (const BufferId id : callersTensors(program_, EntryId{e}, Role::kInput))
        note(program_.at(id), kUsed,
             isForward ? &AmaxSignature::readByForward : &AmaxSignature::readByBackward);
      for (const BufferId id : callersTensors(program_, EntryId{e}, Role::kOutput))
        note(program_.at(id), kFound,
             isForward ? &AmaxSignature::writtenByForward : &AmaxSignature::writtenByBackward);
    }
    std::vector<AmaxSignature> found;
    for (const auto& [name, amax] : amaxes_) found.push_back(amax);
    if (!error_.empty()) return Error{error_};
    return found;
  }

 private:
  void note(const Buffer& buffer, std::string_view suffix, bool AmaxSignature::* use) {
    const std::string name = beforeSuffix(buffer.name, suffix);
    if (name.empty()) return;
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape) {
      if (dim.extent != Extent::kFixed && dim.extent != Extent::kExperts)
        return fail(
            fmt::format("tensor '{}' has tokens or rows, expected one number per expert", buffer.name));
      shape.push_back(program_.sizeAt(rank_, dim, 0));
    }
    if (buffer.type != DType::kF32)
      return fail(fmt::format("tensor '{}' is {}, expected F32", buffer.name, dtypeName(buffer.type)));
    AmaxSignature& amax = amaxes_[name];
    if (!amax.name.empty() && amax.shape != shape)
      return fail(fmt::format("tensors '{}' and '{}' have other shapes", amax.used, amax.found));
    amax.name = name;
    amax.used = name + std::string(kUsed);
    amax.found = name + std::string(kFound);
    amax.shape = shape;
    amax.*use = true;
  }

  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

  const TaskProgram& program_;
  const int rank_;
  std::map<std::string, AmaxSignature> amaxes_;
  std::string error_;
};

}  // namespace

Expected<std::vector<AmaxSignature>> describeAmaxInputs(const TaskProgram& program, int rank) {
  return AmaxReader(program, rank).read();
}

}  // namespace sluice
