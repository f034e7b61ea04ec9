#include "compiler/analysis/cost/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/mesh.h"

namespace sluice {
namespace {

constexpr size_t kMaxGroups = 32;

// Shares of all experts, of any scale.
std::vector<double> computeShares(const Expectation& expectation, size_t experts) {
  std::vector<double> shares(experts, 1.0);
  if (!expectation.shares.empty())
    for (size_t e = 0; e < experts; ++e)
      shares[e] = e < expectation.shares.size() ? std::max(0.0, expectation.shares[e]) : 0.0;
  else if (expectation.exponent > 0)
    for (size_t e = 0; e < experts; ++e)
      shares[e] = std::pow(static_cast<double>(e + 1), -expectation.exponent);
  if (std::accumulate(shares.begin(), shares.end(), 0.0) > 0) return shares;
  return std::vector<double>(experts, 1.0);
}

// Rows by expert: in proportion to the shares, at most `most` each; the excess of an expert goes to the
// others. A few rounds are enough: each fills at least one expert.
std::vector<double> fillRows(const std::vector<double>& shares, double rows, double most) {
  std::vector<double> filled(shares.size(), 0.0);
  double left = std::min(rows, most * static_cast<double>(shares.size()));
  for (int round = 0; round < 64 && left > rows * 1e-9; ++round) {
    double open = 0;
    for (size_t e = 0; e < shares.size(); ++e)
      if (filled[e] < most) open += shares[e];
    if (open <= 0) break;
    double spread = 0;
    for (size_t e = 0; e < shares.size(); ++e) {
      if (filled[e] >= most) continue;
      const double given = std::min(most - filled[e], left * shares[e] / open);
      filled[e] += given;
      spread += given;
    }
    left -= spread;
  }
  return filled;
}

std::vector<ExpertGroup> countGroups(std::vector<double> rows) {
  std::sort(rows.begin(), rows.end(), std::greater<>());
  std::vector<ExpertGroup> groups;
  const size_t step = (rows.size() + kMaxGroups - 1) / kMaxGroups;
  for (size_t begin = 0; begin < rows.size(); begin += step) {
    const size_t end = std::min(rows.size(), begin + step);
    const double sum = std::accumulate(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                                       rows.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
    const ExpertGroup group{sum / static_cast<double>(end - begin), static_cast<double>(end - begin)};
    const bool same = !groups.empty() && std::abs(groups.back().rows - group.rows) < 1e-6 * group.rows + 1e-9;
    if (same)
      groups.back().experts += group.experts;
    else
      groups.push_back(group);
  }
  return groups;
}

// Tokens choose by chance: an expert gets more or fewer rows than its share, by their square root. Three
// groups of the same mean and deviation stand for it, so that slots that only just fit are not taken for
// safe.
std::vector<ExpertGroup> spreadByChance(const std::vector<ExpertGroup>& groups, double tokens) {
  constexpr double kOuter = 0.3, kFar = 1.29;  // 2 kOuter kFar^2 = 1
  std::vector<ExpertGroup> out;
  for (const ExpertGroup& group : groups) {
    const double share = tokens > 0 ? group.rows / tokens : 1;
    const double far = kFar * std::sqrt(group.rows * std::max(0.0, 1 - share));
    const double most = std::min(tokens, group.rows + far), least = 2 * group.rows - most;
    if (far < 0.5 || least < 0) {
      out.push_back(group);
      continue;
    }
    out.push_back({most, group.experts * kOuter});
    out.push_back({group.rows, group.experts * (1 - 2 * kOuter)});
    out.push_back({least, group.experts * kOuter});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ExpertGroup& a, const ExpertGroup& b) { return a.rows > b.rows; });
  return out;
}

}  // namespace

ExpectedRows expectRows(const Expectation& expectation, const StepShape& shape) {
  const double tokens = static_cast<double>(shape.tokens) * static_cast<double>(shape.mesh.sources());
  const std::vector<double> rows =
      fillRows(computeShares(expectation, static_cast<size_t>(shape.experts)),
               tokens * static_cast<double>(std::min(shape.topK, shape.experts)), tokens);
  const ExpertDeal deal{shape.mesh, static_cast<int32_t>(shape.experts)};
  ExpectedRows best;
  auto hottest = rows.begin();  // the first of the rank's experts
  for (int32_t rank = 0; rank < shape.mesh.peers(); ++rank) {
    const auto first = rows.begin() + deal.first(rank);
    const double sum = std::accumulate(first, first + deal.of(rank), 0.0);
    if (rank == 0 || sum > best.rows * (1 + 1e-9)) {
      best.rows = sum;
      best.experts = deal.of(rank);
      hottest = first;
    }
  }
  best.groups = spreadByChance(countGroups({hottest, hottest + best.experts}), tokens);
  return best;
}

}  // namespace sluice
