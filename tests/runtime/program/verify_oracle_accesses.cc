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
    const Operands ids = findOperands(f);
    const OracleRank& here = routing_[rank_];
    const Space& space = program_.at(f.space);
    switch (space.kind) {
      case SpaceKind::kTokens: {
        const int begin = slot * space.slotSize;
        const OracleSlot tokens{0, begin, std::min(space.slotSize, here.tokens - begin)};
        return f.op == OpKind::kCombineSum ? ofSum(f, ids, tokens) : ofRows(f, ids, tokens, tile);
      }
      case SpaceKind::kRows:
        return ofRows(f, ids, here.slots[slot], tile);
      case SpaceKind::kSends:
        return ofPiece(f, ids, here.sends[slot]);
      case SpaceKind::kReturns:
        return ofPiece(f, ids, here.returns[slot]);
      case SpaceKind::kExperts:
        return ofGrad(f, ids, here.experts[slot], tile);
      case SpaceKind::kGroups: {
        const OracleGroup& group = here.groups[slot];
        return ofRows(f, ids, {group.expert, group.row, group.rows}, tile);
      }
      case SpaceKind::kOnce:
        return ofGrad(f, ids, {0, 0, here.tokens}, tile);
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
  void readRow(const Family& f, BufferId buffer, int64_t row, int64_t begin, int64_t bytes) {
    const bool gathered = program_.at(buffer).shape[0].extent == Extent::kTokens &&
                          program_.at(f.space).kind != SpaceKind::kTokens &&
                          program_.at(f.space).kind != SpaceKind::kOnce;
    read(buffer, gathered ? routing_[rank_].pairs[row].token : row, begin, bytes);
  }

  int64_t elementBytes(BufferId buffer) const { return dtypeBytes(program_.at(buffer).type); }
  // Bytes of n numbers of a buffer, if it is there.
  int64_t rowBytes(const Family& f, BufferId buffer) const {
    return buffer ? f.tiling.n * elementBytes(buffer) : 0;
  }

  void ofPiece(const Family& f, const Operands& ids, const OraclePiece& piece) {
    if (f.op == OpKind::kDispatch) return ofSend(f, ids, piece);
    const int64_t bytes = rowBytes(f, ids.rows);
    for (int i = 0; i < piece.rows; ++i) {
      read(ids.rows, piece.row + i, 0, bytes);
      read(ids.rowScalars, piece.row + i, 0, 4);
    }
    for (int i = 0; i < piece.rows; ++i) {
      put(piece.from, ids.returned, piece.pair + i, 0, bytes);
      put(piece.from, ids.returnedScalars, piece.pair + i, 0, 4);
    }
  }

  void ofSend(const Family& f, const Operands& ids, const OraclePiece& piece) {
    const int64_t bytes = rowBytes(f, ids.tokens);
    for (int i = 0; i < piece.rows; ++i) {
      const OraclePair& pair = routing_[piece.from].pairs[piece.pair + i];
      read(ids.tokens, pair.token, 0, bytes);
      read(ids.weights, pair.token, pair.k * 4, 4);
      read(ids.tokenScales, pair.token, 0, 4);
    }
    for (int i = 0; i < piece.rows; ++i) {
      put(piece.to, ids.rows, piece.row + i, 0, bytes);
      put(piece.to, ids.rowWeights, piece.row + i, 0, 4);
      put(piece.to, ids.rowScales, piece.row + i, 0, 4);
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

  // A task reads and writes rows of one expert, or of tokens.
  void ofRows(const Family& f, const Operands& ids, const OracleSlot& rows, int tile) {
    const int64_t n = f.tiling.n, k = f.tiling.k;
    const int64_t width = f.tiling.tileN > 0 ? f.tiling.tileN : n, first = tile * width;
    const int64_t inputs = findInfo(f.tiling.activation).inputs;
    const Columns columns{first, std::min(n - first, width), n, inputs}, all{0, n, n, inputs};
    const bool fused = f.op == OpKind::kGmmActivation || f.op == OpKind::kGmmActivationGrad;
    const int64_t ofA = rowBytes(f, ids.a) / n * k;
    if (f.op == OpKind::kGmm || fused)
      read(ids.b, rows.expert, 0,
           n * k * elementBytes(ids.b) * (f.op == OpKind::kGmmActivation ? inputs : 1));
    if (f.op == OpKind::kGmm) read(ids.bias, rows.expert, columns.first * 2, columns.count * 2);
    if (f.op == OpKind::kGmmActivation) ofInputs(columns, ids.bias, rows.expert, false);
    if (f.op == OpKind::kRowDot) read(ids.b, rows.expert, 0, n * 2);
    read(ids.columnScale, rows.expert, 0, n * 4);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      read(ids.scaleA, row, 0, 4);
      switch (f.op) {
        case OpKind::kQuantize:
          read(ids.a, row, 0, n * 2);
          write(ids.codes, row, 0, n);
          write(ids.codeScales, row, 0, 4);
          break;
        case OpKind::kRowDot:
          read(ids.a, row, 0, n * 2);
          read(ids.addend, row, 0, 4);
          write(ids.c, row, 0, 4);
          break;
        case OpKind::kGmm:
          readRow(f, ids.a, row, 0, ofA);
          write(ids.c, row, columns.first * 2, columns.count * 2);
          break;
        case OpKind::kActivation:
          ofInputs(all, ids.gateUp, row, false);
          write(ids.act, row, 0, n * 2);
          break;
        case OpKind::kActivationGrad:
          read(ids.actGrad, row, 0, n * 2);
          ofInputs(all, ids.gateUp, row, false);
          read(ids.rowWeights, row, 0, 4);
          ofInputs(all, ids.gateUpGrad, row, true);
          write(ids.rowWeightGrad, row, 0, 4);
          write(ids.weightedAct, row, 0, n * 2);
          break;
        case OpKind::kAdd:
          read(ids.b, row, 0, n * 2);
          [[fallthrough]];
        case OpKind::kScale:
          read(ids.rowWeights, row, 0, 4);
          read(ids.a, row, 0, rowBytes(f, ids.a));
          write(ids.c, row, 0, rowBytes(f, ids.a));
          break;
        case OpKind::kGmmActivation:
          readRow(f, ids.a, row, 0, ofA);
          write(ids.act, row, columns.first * 2, columns.count * 2);
          ofInputs(columns, ids.gateUp, row, true);
          break;
        case OpKind::kGmmActivationGrad:
          readRow(f, ids.a, row, 0, ofA);
          ofInputs(columns, ids.gateUp, row, false);
          read(ids.rowWeights, row, 0, 4);
          ofInputs(columns, ids.gateUpGrad, row, true);
          write(ids.rowWeightGrad, row, 0, 4);
          write(ids.weightedAct, row, columns.first * 2, columns.count * 2);
          break;
        default:
          break;
      }
    }
  }

  // A task reads all rows of one expert, or all tokens.
  void ofGrad(const Family& f, const Operands& ids, const OracleSlot& rows, int tile) {
    const Tiling& t = f.tiling;
    if (f.op == OpKind::kColumnSum) return ofColumnSum(f, ids, rows, tile);
    const int64_t across = (t.n + t.tileN - 1) / t.tileN;
    const int64_t m = tile / across * t.tileM, n = tile % across * t.tileN;
    const int64_t height = std::min<int64_t>(t.m - m, t.tileM), width = std::min<int64_t>(t.n - n, t.tileN);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      const int64_t ofA = elementBytes(ids.a), ofB = elementBytes(ids.b);
      readRow(f, ids.a, row, m * ofA, height * ofA);
      readRow(f, ids.b, row, n * ofB, width * ofB);
      read(ids.rowWeights, row, 0, 4);
    }
    const int64_t size = elementBytes(ids.c);
    for (int64_t i = m; i < m + height; ++i) write(ids.c, rows.expert, (i * t.n + n) * size, width * size);
  }

  void ofColumnSum(const Family& f, const Operands& ids, const OracleSlot& rows, int tile) {
    const int64_t first = int64_t{tile} * f.tiling.tileN,
                  count = std::min<int64_t>(f.tiling.n - first, f.tiling.tileN);
    for (int row = rows.row; row < rows.row + rows.rows; ++row) {
      read(ids.a, row, first * 2, count * 2);
      read(ids.rowWeights, row, 0, 4);
    }
    const int64_t size = elementBytes(ids.c);
    write(ids.c, rows.expert, first * size, count * size);
  }

  void ofSum(const Family& f, const Operands& ids, const OracleSlot& tokens) {
    const int64_t bytes = rowBytes(f, ids.returned);
    read(ids.bias, 0, 0, bytes);
    const auto& pairs = routing_[rank_].pairs;
    const int end = tokens.row + tokens.rows;
    for (int i = 0; i < routing_[rank_].returned; ++i) {
      const int token = pairs[i % pairs.size()].token;
      if (token < tokens.row || token >= end) continue;
      read(ids.returned, i, 0, bytes);
      read(ids.returnedScalars, i, 0, 4);
    }
    for (int token = tokens.row; token < end; ++token) {
      read(ids.weights, token, 0, f.tiling.k * 4);
      write(ids.tokens, token, 0, bytes);
      write(ids.tokenScalars, token, 0, f.tiling.k * 4);
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
  Footprint(program, routing, rank, visit).ofTask(family, slot, tile);
}

}  // namespace sluice
