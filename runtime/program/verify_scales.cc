#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/program/op_table.h"
#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

enum class Plane { kScales, kEndScales, kZeros, kFactor, kAmax };
constexpr std::array<std::string_view, 5> kPlaneNames = {"scales", "end scales", "zeros", "factor", "amax"};

// A family encodes, decodes or moves codes together with one of their planes.
struct Partners {
  Plane plane;
  BufferId codes, with;
};

void addPartners(std::vector<Partners>& found, Plane plane, BufferId codes, BufferId with) {
  if (codes && with) found.push_back({plane, codes, with});
}

std::vector<Partners> listPartners(const TaskProgram& program, const Family& family) {
  const OpInfo& op = findInfo(family.op);
  const Operands ids = findOperands(family);
  std::vector<Partners> found;
  for (const std::span<const OperandInfo> operands : {op.reads, op.writes})
    for (const OperandInfo& info : operands) {
      if (info.scales != nullptr)
        addPartners(found, info.isZero ? Plane::kZeros : Plane::kScales, ids.*info.scales, ids.*info.id);
      if (info.findAmax == nullptr) continue;
      const BufferId rounded = ids.codes ? ids.codes : ids.*info.findAmax;
      if (rounded && program.at(rounded).type == DType::kF8_E4M3)
        addPartners(found, Plane::kAmax, rounded, ids.*info.id);
    }
  addPartners(found, Plane::kFactor, ids.b, ids.factorB);
  const OperandName coded = codedFactor(program, family);
  const BufferId codes = coded != nullptr ? ids.*coded : ids.codes;
  addPartners(found, Plane::kScales, codes, ids.codeScales);
  addPartners(found, Plane::kEndScales, codes, ids.endScales);
  return found;
}

}  // namespace

Status checkPartners(const TaskProgram& program) {
  struct Known {
    BufferId other;
    FamilyId by;
  };
  std::map<std::pair<Plane, uint32_t>, Known> planes, codes;  // of codes, and of their planes
  for (uint32_t i = 0; i < program.families.size(); ++i)
    for (const auto& [plane, one, with] : listPartners(program, program.families[i])) {
      const std::string_view name = kPlaneNames[static_cast<size_t>(plane)];
      const auto known = planes.try_emplace({plane, one.value}, Known{with, FamilyId{i}}).first->second;
      if (known.other != with)
        return fail("{} takes buffer '{}' for the {} of buffer '{}', expected buffer '{}' as {} has it",
                    fullName(program, FamilyId{i}), program.at(with).name, name, program.at(one).name,
                    program.at(known.other).name, fullName(program, known.by));
      if (plane == Plane::kAmax) continue;  // numbers that are moved keep it
      const auto owner = codes.try_emplace({plane, with.value}, Known{one, FamilyId{i}}).first->second;
      if (owner.other != one)
        return fail("{} takes buffer '{}' for the {} of buffer '{}', but it has those of buffer '{}' in {}",
                    fullName(program, FamilyId{i}), program.at(with).name, name, program.at(one).name,
                    program.at(owner.other).name, fullName(program, owner.by));
    }
  return {};
}

}  // namespace sluice::verify_parts
