#include "compiler/analysis/cost/expected_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// The rows of `count` experts that represent all: the groups in their proportions, mixed, because an expert's
// number is unrelated to its load. Rounding errors carry over, so that the sum is right.
std::vector<int32_t> pickExperts(const ExpectedRows& rows, int32_t count) {
  double experts = 0;
  for (const ExpertGroup& group : rows.groups) experts += group.experts;
  std::vector<double> byRank;
  size_t at = 0;
  double before = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double place = (i + 0.5) / count * experts;
    while (at + 1 < rows.groups.size() && place > before + rows.groups[at].experts)
      before += rows.groups[at++].experts;
    byRank.push_back(rows.groups.empty() ? 0 : rows.groups[at].rows);
  }
  int32_t stride = std::max(1, static_cast<int32_t>(count * 0.618));
  while (std::gcd(stride, count) != 1) ++stride;
  std::vector<int32_t> picked;
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double next = sum + byRank[static_cast<size_t>(int64_t{i} * stride % count)];
    picked.push_back(static_cast<int32_t>(std::floor(next + 0.5) - std::floor(sum + 0.5)));
    sum = next;
  }
  return picked;
}

// How many of an expert's `total` rows come before the rows of `source`, if all sources send it equally many.
int32_t rowsBefore(int64_t total, int64_t source, int64_t sources) {
  return static_cast<int32_t>(total * source / sources);
}

// Returns the rows of the rank's experts, by peer: equal parts from all that hold different tokens.
std::vector<int32_t> countRowsByPeer(const std::vector<int32_t>& rowsOfExperts, const Mesh& mesh) {
  std::vector<int32_t> counts;
  for (int32_t peer = 0; peer < mesh.peers(); ++peer)
    for (const int32_t rows : rowsOfExperts) {
      const int32_t source = mesh.sourceOf(peer);
      counts.push_back(rowsBefore(rows, source + 1, mesh.sources()) -
                       rowsBefore(rows, source, mesh.sources()));
    }
  return counts;
}

}  // namespace

ExpectedStep expectStep(const CostProblem& problem, const ExpectedRows& rows, int32_t experts, bool ownLast) {
  const Mesh& mesh = problem.program.mesh;
  const int32_t peers = mesh.peers(), slotRows = problem.slotSize(SpaceKind::kRows),
                tokenSlot = problem.slotSize(SpaceKind::kTokens),
                groupRows = problem.slotSize(SpaceKind::kGroups);
  ExpectedStep step;
  step.part = std::min(1.0, experts / static_cast<double>(std::max<int64_t>(1, rows.experts)));
  step.rank = peers / 2;
  RoutingTables& tables = step.tables;
  tables.tokens = static_cast<int32_t>(std::ceil(problem.program.maxTokens * step.part));
  tables.tokenSlots = (tables.tokens + tokenSlot - 1) / tokenSlot;
  const RoutingShape shape{.mesh = mesh,
                           .experts = mesh.ep * experts,
                           .slotRows = slotRows,
                           .groupSlots = groupRows > slotRows ? groupRows / slotRows : 0,
                           .ownLast = ownLast};
  const std::vector<int32_t> counts = countRowsByPeer(pickExperts(rows, experts), mesh);
  buildReceived(shape, step.rank, {counts.data(), static_cast<size_t>(experts)}, tables);
  // the rank as far after this one as the source is before it
  tables.sends.clear();
  for (const Piece& piece : tables.returns)
    if (mesh.sends(piece.peer, step.rank)) tables.sends.push_back(piece);
  for (Piece& piece : tables.sends) piece.peer = (2 * step.rank - piece.peer + peers) % peers;
  orderSends(mesh, step.rank, tables.sends);
  for (const Piece& piece : tables.returns) tables.returned += piece.rows;
  return step;
}

}  // namespace sluice
