#include "tests/runtime/program/verify_oracle_accesses.h"

#include <algorithm>
#include <functional>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

class Footprint {
 public:
  Footprint(const TaskProgram& program, const std::vector<OracleRank>& routing, int rank,
            const std::function<void(const OracleAccess&)>& visit)
      : program_(program), routing_(routing), rank_(rank), visit_(visit) {}

  void ofTask(const Family& f, int slot, int tile) {
    const OracleRank& here = routing_[rank_];
    const Space& space = program_.at(f.space);
    switch (space.kind) {
      case SpaceKind::kTokens: {
        const int begin = slot * space.slotSize;
        const OracleSlot tokens{0, begin, std::min(space.slotSize, here.tokens - begin)};
        return f.op == OpKind::kCombineSum ? ofSum(f, tokens) : ofRows(f, tokens, tile);
      }
      case SpaceKind::kRows:
        return ofRows(f, here.slots[slot], tile);
      case SpaceKind::kSends:
        return ofPiece(f, here.sends[slot]);
      case SpaceKind::kReturns:
        return ofPiece(f, here.returns[slot]);
      case SpaceKind::kExperts:
        return ofGrad(f, here.experts[slot], tile);
      case SpaceKind::kGroups: {
        const OracleGroup& group = here.groups[slot];
        return ofRows(f, {group.expert, group.row, group.rows}, tile);
      }
      case SpaceKind::kOnce:
        return ofGrad(f, {0, 0, here.tokens}, tile);
    }
  }

 private:
  void read(BufferId buffer, int64_t index, int64_t begin, int64_t bytes) {
    if (buffer) visit_({rank_, buffer, index, begin, bytes, false});
  }
  void write(BufferId buffer, int64_t index, int64_t begin, int64_t bytes) {
    put(rank_, buffer, index, begin, bytes);
  }
  void put(int rank, BufferId buffer, int64_t index, int64_t begin, int64_t bytes) {
    if (buffer) visit_({rank, buffer, index, begin, bytes, true});
  }

  // As read(), of the token of the row where rows are gathered from tokens.
  void readRow(const Family& f, size_t operand, int64_t row, int64_t begin, int64_t bytes) {
    const bool gathered = program_.at(f.reads[operand]).shape[0].extent == Extent::kTokens &&
                          program_.at(f.space).kind != SpaceKind::kTokens &&
                          program_.at(f.space).kind != SpaceKind::kOnce;
    read(f.reads[operand], gathered ? routing_[rank_].pairs[row].token : row, begin, bytes);
  }

  int64_t elementBytes(BufferId buffer) const { return dtypeBytes(program_.at(buffer).type); }
  // Bytes of a row of the first operand, if it is there.
  int64_t rowBytes(const Family& f) const { return f.reads[0] ? f.tiling.n * elementBytes(f.reads[0]) : 0; }

  void ofPiece(const Family& f, const OraclePiece& piece) {
    const int64_t bytes = rowBytes(f);
    const bool send = f.op == OpKind::kDispatch;
    for (int i = 0; i < piece.rows; ++i) {
      if (send) {
        const OraclePair& pair = routing_[piece.from].pairs[piece.pair + i];
        read(f.reads[0], pair.token, 0, bytes);
        read(f.reads[1], pair.token, pair.k * 4, 4);
        read(operandAt(f.reads, 2), pair.token, 0, 4);
      } else {
        read(f.reads[0], piece.row + i, 0, bytes);
        read(f.reads[1], piece.row + i, 0, 4);
      }
    }
    for (int i = 0; i < piece.rows; ++i) {
      const int to = send ? piece.to : piece.from;
      const int64_t index = send ? piece.row + i : piece.pair + i;
      put(to, f.writes[0], index, 0, bytes);
      put(to, f.writes[1], index, 0, 4);
      put(to, operandAt(f.writes, 2), index, 0, 4);
    }
  }

  // Columns of bf16 of one element, the same of each of the inputs of an activation, `n` columns apart.
  struct Columns {
    int64_t first, count, n, inputs;
  };
  void ofInputs(const Columns& c, BufferId buffer, int64_t row, bool isWrite) {
    for (int64_t from = c.first; from < c.inputs * c.n; from += c.n) {
      if (isWrite) write(buffer, row, from * 2, c.count * 2);
      if (!isWrite) read(buffer, row, from * 2, c.count * 2);
    }
  }

  // Of rows of one expert, or of tokens.
  void ofRows(const Family& f, const OracleSlot& rows, int tile) {
    const int64_t n = f.tiling.n, k = f.tiling.k;
    const int64_t width = f.tiling.tileN > 0 ? f.tiling.tileN : n, first = tile * width;
    const int64_t inputs = infoOf(f.tiling.activation).inputs;
    const Columns columns{first, std::min(n - first, width), n, inputs}, all{0, n, n, inputs};
    const bool fused = f.op == OpKind::kGmmActivation || f.op == OpKind::kGmmActivationGrad;
    const int64_t ofA = elementBytes(f.reads[0]) * k;
    if (f.op == OpKind::kGmm || fused)
      read(f.reads[1], rows.expert, 0,
           n * k * elementBytes(f.reads[1]) * (f.op == OpKind::kGmmActivation ? inputs : 1));
    if (f.op == OpKind::kGmm) read(f.reads[2], rows.expert, columns.first * 2, columns.count * 2);
    if (f.op == OpKind::kGmmActivation) ofInputs(columns, f.reads[2], rows.expert, false);
    if (f.op == OpKind::kRowDot) read(f.reads[1], rows.expert, 0, n * 2);
    if (f.op == OpKind::kQuantize) read(f.reads[1], rows.expert, 0, n * 4);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      if (const auto scale = scaleOf(f.op, 0)) read(f.reads[*scale], row, 0, 4);
      switch (f.op) {
        case OpKind::kQuantize:
          read(f.reads[0], row, 0, n * 2);
          write(f.writes[0], row, 0, n);
          write(f.writes[1], row, 0, 4);
          break;
        case OpKind::kRowDot:
          read(f.reads[0], row, 0, n * 2);
          read(f.reads[2], row, 0, 4);
          write(f.writes[0], row, 0, 4);
          break;
        case OpKind::kGmm:
          readRow(f, 0, row, 0, ofA);
          write(f.writes[0], row, columns.first * 2, columns.count * 2);
          break;
        case OpKind::kActivation:
          ofInputs(all, f.reads[0], row, false);
          write(f.writes[0], row, 0, n * 2);
          break;
        case OpKind::kActivationGrad:
          read(f.reads[0], row, 0, n * 2);
          ofInputs(all, f.reads[1], row, false);
          read(f.reads[2], row, 0, 4);
          ofInputs(all, f.writes[0], row, true);
          write(f.writes[1], row, 0, 4);
          write(f.writes[2], row, 0, n * 2);
          break;
        case OpKind::kAdd:
          read(f.reads[1], row, 0, n * 2);
          [[fallthrough]];
        case OpKind::kScale:
          if (f.op == OpKind::kScale) read(f.reads[1], row, 0, 4);
          read(f.reads[0], row, 0, rowBytes(f));
          write(f.writes[0], row, 0, rowBytes(f));
          break;
        case OpKind::kGmmActivation:
          readRow(f, 0, row, 0, ofA);
          write(f.writes[0], row, columns.first * 2, columns.count * 2);
          ofInputs(columns, f.writes[1], row, true);
          break;
        case OpKind::kGmmActivationGrad:
          readRow(f, 0, row, 0, ofA);
          ofInputs(columns, f.reads[2], row, false);
          read(f.reads[3], row, 0, 4);
          ofInputs(columns, f.writes[0], row, true);
          write(f.writes[1], row, 0, 4);
          write(f.writes[2], row, columns.first * 2, columns.count * 2);
          break;
        default:
          break;
      }
    }
  }

  // Of all rows of one expert, or of all tokens.
  void ofGrad(const Family& f, const OracleSlot& rows, int tile) {
    const Tiling& t = f.tiling;
    if (f.op == OpKind::kColumnSum) return ofColumnSum(f, rows, tile);
    const int64_t across = (t.n + t.tileN - 1) / t.tileN;
    const int64_t m = tile / across * t.tileM, n = tile % across * t.tileN;
    const int64_t height = std::min<int64_t>(t.m - m, t.tileM), width = std::min<int64_t>(t.n - n, t.tileN);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      const int64_t ofA = elementBytes(f.reads[0]), ofB = elementBytes(f.reads[1]);
      readRow(f, 0, row, m * ofA, height * ofA);
      readRow(f, 1, row, n * ofB, width * ofB);
      read(f.reads[2], row, 0, 4);
    }
    const int64_t size = dtypeBytes(program_.at(f.writes[0]).type);
    for (int64_t i = m; i < m + height; ++i)
      write(f.writes[0], rows.expert, (i * t.n + n) * size, width * size);
  }

  void ofColumnSum(const Family& f, const OracleSlot& rows, int tile) {
    const int64_t first = int64_t{tile} * f.tiling.tileN,
                  count = std::min<int64_t>(f.tiling.n - first, f.tiling.tileN);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      read(f.reads[0], row, first * 2, count * 2);
      read(f.reads[1], row, 0, 4);
    }
    const int64_t size = dtypeBytes(program_.at(f.writes[0]).type);
    write(f.writes[0], rows.expert, first * size, count * size);
  }

  void ofSum(const Family& f, const OracleSlot& tokens) {
    const int64_t bytes = rowBytes(f);
    read(f.reads[3], 0, 0, bytes);
    const auto& pairs = routing_[rank_].pairs;
    const int end = tokens.row + tokens.rows;
    for (int i = 0; i < routing_[rank_].returned; ++i) {
      const int token = pairs[i % pairs.size()].token;
      if (token < tokens.row || token >= end) continue;
      read(f.reads[0], i, 0, bytes);
      read(f.reads[2], i, 0, 4);
    }
    for (int token = tokens.row; token < end; ++token) {
      read(f.reads[1], token, 0, f.tiling.k * 4);
      write(f.writes[0], token, 0, bytes);
      write(f.writes[1], token, 0, f.tiling.k * 4);
    }
  }

  const TaskProgram& program_;
  const std::vector<OracleRank>& routing_;
  const int rank_;
  const std::function<void(const OracleAccess&)>& visit_;
};

}  // namespace

void forEachAccess(const TaskProgram& program, const std::vector<OracleRank>& routing, int rank,
                   const Family& family, int slot, int tile,
                   const std::function<void(const OracleAccess&)>& visit) {
  Family complete = family;  // absent operands may be missing at the ends
  complete.reads.resize(infoOf(family.op).reads.size());
  complete.writes.resize(infoOf(family.op).writes.size());
  Footprint(program, routing, rank, visit).ofTask(complete, slot, tile);
}

}  // namespace sluice
