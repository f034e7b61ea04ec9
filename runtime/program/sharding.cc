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
      : program_(program), family_(family), op_(infoOf(family.op)) {}

  Expected<std::vector<S>> run() {
    const std::vector<S> written = results();
    if (wrong_) return *wrong_;
    return written;
  }

 private:
  std::vector<S> results() {
    if (infoOf(program_.at(family_.space).kind).dense) return ofTokens();
    if (op_.isSum()) return {sumOfRows()};
    if (op_.vector == VectorWork::kColumnSum) return {columnSum()};
    if (op_.vector == VectorWork::kRowDot) return {rowDot()};
    if (op_.vector == VectorWork::kAmax) {  // of the part that the rank has
      require(0, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
      return {S::kWhole};
    }
    if (op_.vector == VectorWork::kEncode) {  // blocks and amaxes are of columns that the rank has
      if (has(family_.reads, 2)) require(2, {require(0, {S::kWhole})});
      return std::vector<S>(family_.writes.size(), require(0, {S::kWhole, S::kColumns}));
    }
    if (op_.vector == VectorWork::kQuantize) return quantize();
    if (op_.multiplies()) return ofProduct();
    switch (op_.vector) {
      case VectorWork::kActivation:
        return {activation(require(0, {ofInputs(), S::kWhole}))};
      case VectorWork::kActivationGrad:
        return activationGrad(require(0, {S::kColumns, S::kWhole}), 1);
      case VectorWork::kAdd:
        require(1, {read(0)});
        return {read(0)};
      case VectorWork::kScale:
        if (has(family_.reads, 1)) require(1, {S::kWhole});
        return {read(0)};
      default:
        break;
    }
    return all(op_.domain == Domain::kReturns ? S::kPartial : S::kWhole);
  }

  // Tensors of tokens are whole; what the ranks of a group returned for a (token, k) pair are terms of a sum.
  std::vector<S> ofTokens() {
    for (size_t i = 0; i < op_.reads.size(); ++i) {
      const bool isOfPairs = op_.reads[i].shape.starts_with('P');
      if (has(family_.reads, i)) require(i, {isOfPairs ? S::kPartial : S::kWhole});
    }
    return std::vector<S>(op_.writes.size(), S::kWhole);
  }

  // Every operand and every result.
  std::vector<S> all(S sharding) {
    for (size_t i = 0; i < op_.reads.size(); ++i)
      if (has(family_.reads, i)) require(i, {sharding});
    return std::vector<S>(op_.writes.size(), sharding);
  }

  // Sum over rows of a times b: each rank has all rows.
  S sumOfRows() {
    if (has(family_.reads, 2)) require(2, {S::kWhole});
    if (const auto coded = codedFactor(program_, family_))
      for (const size_t scales : {kCodeScales, kEndScales})
        if (has(family_.reads, scales)) require(scales, {read(*coded)});
    const S a = require(0, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
    if (a != S::kWhole) require(1, {S::kWhole});
    switch (a) {
      case S::kColumns:
        return S::kRows;
      case S::kGateUpColumns:
        return S::kGateUpRows;
      default:
        return a == S::kPartial ? a : read(1);
    }
  }

  // Each rank has all rows of its columns.
  S columnSum() {
    if (has(family_.reads, 1)) require(1, {S::kWhole});
    return require(0, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kPartial});
  }

  // The scale of columns lies along its last dimension, or as that of a transposed weight.
  std::vector<S> quantize() {
    const S a = require(0, {S::kWhole, S::kColumns, S::kGateUpColumns});
    if (has(family_.reads, 1)) {
      const bool rows = program_.at(family_.reads[1]).shape.back().size == 1 && family_.tiling.n != 1;
      require(1, {!rows || a == S::kWhole ? a : a == S::kColumns ? S::kRows : S::kGateUpRows});
    }
    return {a, S::kWhole};
  }

  S rowDot() {
    const S a = require(0, {S::kWhole, S::kColumns});
    require(1, {a});
    const S product = a == S::kWhole ? S::kWhole : S::kPartial;
    if (!has(family_.reads, 2)) return product;
    // the product of whole operands is a term of shard 0 only
    return a == S::kWhole ? require(2, {S::kWhole, S::kPartial}) : require(2, {S::kPartial});
  }

  std::vector<S> ofProduct() {
    const S product = productWith(read(1));
    requireScales();
    if (op_.vector != VectorWork::kActivationGrad && has(family_.reads, 2))
      require(2, {product == S::kPartial ? S::kWhole : product});
    switch (op_.vector) {
      case VectorWork::kActivation:
        if (product != ofInputs() && product != S::kWhole)
          refuse(1, {isTransposed() ? shardedRowsOf(family_.tiling.activation) : ofInputs(), S::kWhole});
        return {activation(product), product};
      case VectorWork::kActivationGrad:
        if (product != S::kColumns && product != S::kWhole)
          refuse(1, {isTransposed() ? S::kRows : S::kColumns, S::kWhole});
        return activationGrad(product, 2);
      default:
        return {product};
    }
  }

  // The scales of rows, and those of the part of the weight that a rank has.
  void requireScales() {
    if (const auto ofRows = scaleOf(family_.op, 0); ofRows && has(family_.reads, *ofRows))
      require(*ofRows, {S::kWhole});
    for (const auto ofWeight : {scaleOf(family_.op, 1), zeroOf(family_.op)})
      if (ofWeight && has(family_.reads, *ofWeight)) requireScale(*ofWeight);
  }

  void requireScale(size_t ofWeight) {
    const Buffer &weight = program_.at(family_.reads[1]), &scale = program_.at(family_.reads[ofWeight]);
    const bool rows = weight.sharding == S::kRows || weight.sharding == S::kGateUpRows;
    const Dim& shared = scale.shape[scale.shape.size() - (rows ? 2 : 1)];
    require(ofWeight, {shared.size == 1 ? S::kWhole : weight.sharding});
  }

  S productWith(S weight) {
    if (weight == S::kPartial)
      refuse(1, {S::kWhole, S::kColumns, S::kGateUpColumns, S::kRows, S::kGateUpRows});
    if (weight == S::kWhole) return require(0, {S::kWhole, S::kPartial});
    const bool rows = weight == S::kRows || weight == S::kGateUpRows;
    const bool halves = weight == S::kGateUpColumns || weight == S::kGateUpRows;
    const S columns = halves ? S::kGateUpColumns : S::kColumns;
    if (isTransposed() != rows) {  // the sum is over the dimension that is sharded
      require(0, {columns});
      return S::kPartial;
    }
    require(0, {S::kWhole});
    return columns;
  }

  bool isTransposed() const { return sluice::isTransposed(family_.op, family_.tiling); }

  // Of what an activation reads, at a rank that has a part of it.
  S ofInputs() const { return shardedColumnsOf(family_.tiling.activation); }

  static S activation(S gateUp) { return gateUp == S::kWhole ? S::kWhole : S::kColumns; }

  // `gateUp` is the position of that operand, after which the weights of rows come.
  std::vector<S> activationGrad(S actGrad, size_t gateUp) {
    const bool whole = actGrad == S::kWhole;
    const S inputs = whole ? S::kWhole : ofInputs();
    require(gateUp, {inputs});
    if (has(family_.reads, gateUp + 1)) require(gateUp + 1, {S::kWhole});
    return {inputs, whole ? S::kWhole : S::kPartial, actGrad};
  }

  S read(size_t operand) const { return program_.at(family_.reads[operand]).sharding; }

  // The operand's sharding, which must be one of `allowed`.
  S require(size_t operand, std::initializer_list<S> allowed) {
    const S found = read(operand);
    if (std::ranges::find(allowed, found) == allowed.end()) refuse(operand, allowed);
    return found;
  }

  void refuse(size_t operand, std::initializer_list<S> allowed) {
    if (wrong_) return;
    std::vector<std::string> words;
    for (S sharding : allowed) words.push_back(text::word(sharding));
    const BufferId id = family_.reads[operand];
    wrong_ = Error{fmt::format("{} is '{}', {} at each of {} ranks{}, expected {}", op_.reads[operand].name,
                               program_.at(id).name, text::word(program_.at(id).sharding), program_.mesh.tp,
                               writerOf(id), fmt::join(words, " or "))};
  }

  std::string writerOf(BufferId id) const {
    for (const Family& writer : program_.families)
      if (std::ranges::find(writer.writes, id) != writer.writes.end())
        return fmt::format(" as node '{}' writes it", writer.name);
    return {};
  }

  const TaskProgram& program_;
  const Family& family_;
  const OpInfo& op_;
  std::optional<Error> wrong_;
};

}  // namespace

Expected<std::vector<Sharding>> shardingsOf(const TaskProgram& program, const Family& family) {
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
