#include "runtime/program/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

using S = Sharding;

class FamilyRule {
 public:
  FamilyRule(const TaskProgram& program, const Family& family)
      : program_(program), family_(family), op_(findInfo(family.op)), ids_(findOperands(family)) {}

  Expected<std::vector<S>> run() {
    const std::vector<S> written = results();
    if (wrong_) return *wrong_;
    return written;
  }

 private:
  std::vector<S> results() {
    if (findInfo(program_.at(family_.space).kind).dense) return ofTokens();
    if (op_.isSum()) return {sumOfRows()};
    if (op_.vector == VectorWork::kColumnSum) return {columnSum()};
    if (op_.vector == VectorWork::kRowDot) return {rowDot()};
    if (op_.vector == VectorWork::kAmax) {  // of the part that the rank has
      require(&Operands::a, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
      return {S::kWhole};
    }
    if (op_.vector == VectorWork::kEncode) {  // blocks and amaxes are of columns that the rank has
      if (ids_.scaleA) require(&Operands::scaleA, {require(&Operands::a, {S::kWhole})});
      return std::vector<S>(family_.writes.size(), require(&Operands::a, {S::kWhole, S::kColumns}));
    }
    if (op_.vector == VectorWork::kQuantize) return quantize();
    if (op_.multiplies()) return ofProduct();
    switch (op_.vector) {
      case VectorWork::kActivation:
        return {activation(require(&Operands::gateUp, {ofInputs(), S::kWhole}))};
      case VectorWork::kActivationGrad:
        return activationGrad(require(&Operands::actGrad, {S::kColumns, S::kWhole}));
      case VectorWork::kElements:
        return elements();
      default:
        break;
    }
    return all(op_.domain == Domain::kReturns ? S::kPartial : S::kWhole);
  }

  // Tensors of tokens are whole; what the ranks of a group returned for a (token, k) pair are terms of a sum.
  std::vector<S> ofTokens() {
    for (const OperandInfo& operand : op_.reads)
      requireIf(operand.id, {operand.shape.starts_with('P') ? S::kPartial : S::kWhole});
    return std::vector<S>(op_.writes.size(), S::kWhole);
  }

  // Every operand and every result.
  std::vector<S> all(S sharding) {
    for (const OperandInfo& operand : op_.reads) requireIf(operand.id, {sharding});
    return std::vector<S>(op_.writes.size(), sharding);
  }

  // Operands with a number for each element have the parts that the results have.
  std::vector<S> elements() {
    const S parts = op_.isLinear ? read(&Operands::a) : require(&Operands::a, {S::kWhole, S::kColumns});
    for (const OperandInfo& operand : op_.reads)
      requireIf(operand.id, {operand.shape == "Xn" ? parts : S::kWhole});
    return std::vector<S>(op_.writes.size(), parts);
  }

  // Sum over rows of a times b: each rank has all rows.
  S sumOfRows() {
    requireIf(&Operands::rowWeights, {S::kWhole});
    if (const OperandName coded = codedFactor(program_, family_))
      for (const OperandName scales : {&Operands::codeScales, &Operands::endScales})
        requireIf(scales, {read(coded)});
    const S a = require(&Operands::a, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
    if (a != S::kWhole) require(&Operands::b, {S::kWhole});
    switch (a) {
      case S::kColumns:
        return S::kRows;
      case S::kGateUpColumns:
        return S::kGateUpRows;
      default:
        return a == S::kPartial ? a : read(&Operands::b);
    }
  }

  // Each rank has all rows of its columns.
  S columnSum() {
    requireIf(&Operands::rowWeights, {S::kWhole});
    return require(&Operands::a, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
  }

  // The scale of columns lies along its last dimension, or as the scale of a transposed weight lies.
  std::vector<S> quantize() {
    const S a = require(&Operands::a, {S::kWhole, S::kColumns, S::kGateUpColumns});
    if (ids_.columnScale) {
      const bool rows = program_.at(ids_.columnScale).shape.back().size == 1 && family_.tiling.n != 1;
      require(&Operands::columnScale, {!rows || a == S::kWhole ? a
                                       : a == S::kColumns      ? S::kRows
                                                               : S::kGateUpRows});
    }
    return {a, S::kWhole};
  }

  S rowDot() {
    const S a = require(&Operands::a, {S::kWhole, S::kColumns});
    require(&Operands::b, {a});
    const S product = a == S::kWhole ? S::kWhole : S::kPartial;
    if (!ids_.addend) return product;
    // the product of whole operands is a term of shard 0 only
    return a == S::kWhole ? require(&Operands::addend, {S::kWhole, S::kPartial})
                          : require(&Operands::addend, {S::kPartial});
  }

  std::vector<S> ofProduct() {
    const S product = productWith(read(&Operands::b));
    requireScales();
    requireIf(&Operands::bias, {product == S::kPartial ? S::kWhole : product});
    switch (op_.vector) {
      case VectorWork::kActivation:
        if (product != ofInputs() && product != S::kWhole)
          refuse(&Operands::b,
                 {isTransposed() ? findShardedRows(family_.tiling.activation) : ofInputs(), S::kWhole});
        return {activation(product), product};
      case VectorWork::kActivationGrad:
        if (product != S::kColumns && product != S::kWhole)
          refuse(&Operands::b, {isTransposed() ? S::kRows : S::kColumns, S::kWhole});
        return activationGrad(product);
      default:
        return {product};
    }
  }

  // The scales of rows, and the scales of the part of the weight that a rank has.
  void requireScales() {
    requireIf(&Operands::scaleA, {S::kWhole});
    requireIf(&Operands::factorB, {S::kWhole});
    for (const OperandName ofWeight : {&Operands::scaleB, &Operands::zeroB})
      if (ids_.*ofWeight) requireScale(ofWeight);
  }

  void requireScale(OperandName ofWeight) {
    const Buffer &weight = program_.at(ids_.b), &scale = program_.at(ids_.*ofWeight);
    const bool rows = weight.sharding == S::kRows || weight.sharding == S::kGateUpRows;
    const Dim& shared = scale.shape[scale.shape.size() - (rows ? 2 : 1)];
    require(ofWeight, {shared.size == 1 ? S::kWhole : weight.sharding});
  }

  S productWith(S weight) {
    if (weight == S::kPartial)
      refuse(&Operands::b, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kRows, S::kGateUpRows});
    if (weight == S::kWhole) return require(&Operands::a, {S::kWhole, S::kPartial});
    const bool rows = weight == S::kRows || weight == S::kGateUpRows;
    const bool halves = weight == S::kGateUpColumns || weight == S::kGateUpRows;
    const S columns = halves ? S::kGateUpColumns : S::kColumns;
    if (isTransposed() != rows) {  // the sum is over the dimension that is sharded
      require(&Operands::a, {columns});
      return S::kPartial;
    }
    require(&Operands::a, {S::kWhole});
    return columns;
  }

  bool isTransposed() const { return sluice::isTransposed(family_.op, family_.tiling); }

  // Returns the sharding of what an activation reads, at a rank that has a part of it.
  S ofInputs() const { return findShardedColumns(family_.tiling.activation); }

  static S activation(S gateUp) { return gateUp == S::kWhole ? S::kWhole : S::kColumns; }

  std::vector<S> activationGrad(S actGrad) {
    const bool whole = actGrad == S::kWhole;
    const S inputs = whole ? S::kWhole : ofInputs();
    require(&Operands::gateUp, {inputs});
    requireIf(&Operands::rowWeights, {S::kWhole});
    return {inputs, whole ? S::kWhole : S::kPartial, actGrad};
  }

  S read(OperandName operand) const { return program_.at(ids_.*operand).sharding; }

  // The operand's sharding, which must be one of `allowed`.
  S require(OperandName operand, std::initializer_list<S> allowed) {
    const S found = read(operand);
    if (std::ranges::find(allowed, found) == allowed.end()) refuse(operand, allowed);
    return found;
  }

  // Likewise of an operand that may be absent.
  void requireIf(OperandName operand, std::initializer_list<S> allowed) {
    if (ids_.*operand) require(operand, allowed);
  }

  void refuse(OperandName operand, std::initializer_list<S> allowed) {
    if (wrong_) return;
    std::vector<std::string> words;
    for (S sharding : allowed) words.push_back(text::word(sharding));
    const BufferId id = ids_.*operand;
    wrong_ = Error{fmt::format("{} is '{}', {} at each of {} ranks{}, expected {}", op_.find(operand)->name,
                               program_.at(id).name, text::word(program_.at(id).sharding), program_.mesh.tp,
                               findWriter(id), fmt::join(words, " or "))};
  }

  std::string findWriter(BufferId id) const {
    for (const Family& writer : program_.families)
      if (std::ranges::find(writer.writes, id) != writer.writes.end())
        return fmt::format(" as node '{}' writes it", writer.name);
    return {};
  }

  const TaskProgram& program_;
  const Family& family_;
  const OpInfo& op_;
  const Operands ids_;
  std::optional<Error> wrong_;
};

}  // namespace

Expected<std::vector<Sharding>> deriveShardings(const TaskProgram& program, const Family& family) {
  return FamilyRule(program, family).run();
}

Status checkSharding(const Buffer& buffer) {
  if (buffer.sharding == S::kWhole) return {};
  const bool isOfCaller = buffer.role == Role::kInput || buffer.role == Role::kOutput;
  if (isOfCaller && buffer.shape[0].extent == Extent::kTokens)
    return Error{
        fmt::format("buffer '{}' of tokens is {}, expected whole", buffer.name, text::word(buffer.sharding))};
  if (buffer.role == Role::kInput && buffer.sharding == S::kPartial)
    return Error{
        fmt::format("buffer '{}' is an input that is partial, expected whole, columns, gate_up_columns, rows "
                    "or gate_up_rows",
                    buffer.name)};
  const auto dimension = [&](size_t fromEnd) -> int64_t {
    return buffer.shape.size() < fromEnd ? 0 : buffer.shape[buffer.shape.size() - fromEnd].size;
  };
  const bool fits = buffer.sharding == S::kRows            ? dimension(2) > 0
                    : buffer.sharding == S::kColumns       ? dimension(1) > 0
                    : buffer.sharding == S::kGateUpColumns ? dimension(1) > 0 && dimension(1) % 2 == 0
                    : buffer.sharding == S::kGateUpRows    ? dimension(2) > 0 && dimension(2) % 2 == 0
                                                           : true;
  if (fits) return {};
  return Error{
      fmt::format("buffer '{}' is {}, but has no such dimension", buffer.name, text::word(buffer.sharding))};
}

}  // namespace sluice
