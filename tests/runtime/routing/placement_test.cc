// Places of experts: how ids turn into places, and how places are chosen.
#include "runtime/routing/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace sluice {
namespace {

// A random placement of 1 to 8 experts in up to 12 places.
std::vector<int32_t> drawPlaces(std::mt19937& random, int32_t experts) {
  std::vector<int32_t> expertAt;
  for (int32_t expert = 0; expert < experts; ++expert) expertAt.push_back(expert);
  for (auto spare = random() % 5; spare > 0; --spare)
    expertAt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(experts)));
  std::shuffle(expertAt.begin(), expertAt.end(), random);
  return expertAt;
}

double spread(const std::vector<int32_t>& expertAt, const std::vector<double>& rows, const ExpertDeal& deal) {
  std::map<int32_t, int> copies;
  for (const int32_t expert : expertAt) ++copies[expert];
  double most = 0, sum = 0;
  for (int32_t rank = 0; rank < deal.mesh.peers(); ++rank) {
    double own = 0;
    for (int32_t place = deal.first(rank); place < deal.first(rank) + deal.of(rank); ++place) {
      const int32_t expert = expertAt[static_cast<size_t>(place)];
      own += rows[static_cast<size_t>(expert)] / copies[expert];
    }
    most = std::max(most, own);
    sum += own;
  }
  return most / (sum / deal.mesh.peers());
}

TEST_CASE("ids go to places of their expert, evenly at each source") {
  std::mt19937 random(7);
  Placement placement;
  for (int round = 0; round < 200; ++round) {
    const auto experts = static_cast<int32_t>(1 + random() % 8);
    const std::vector<int32_t> expertAt = drawPlaces(random, experts);
    REQUIRE(placement.set(expertAt, experts).ok());
    std::vector<int32_t> ids(random() % 100);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (experts + 1)) - 1;
    for (int32_t source = 0; source < 5; ++source) {
      const std::span<const int32_t> placed = placement.place(ids, source);
      REQUIRE(placed.size() == ids.size());
      std::map<int32_t, int> byPlace;
      for (size_t i = 0; i < ids.size(); ++i) {
        REQUIRE((ids[i] < 0 ? placed[i] == ids[i] : expertAt[static_cast<size_t>(placed[i])] == ids[i]));
        if (ids[i] >= 0) ++byPlace[placed[i]];
      }
      for (size_t a = 0; a < expertAt.size(); ++a)
        for (size_t b = 0; b < expertAt.size(); ++b)
          if (expertAt[a] == expertAt[b])
            REQUIRE(std::abs(byPlace[static_cast<int32_t>(a)] - byPlace[static_cast<int32_t>(b)]) <= 1);
    }
  }
}

TEST_CASE("sources with one row each use different places") {
  Placement placement;
  REQUIRE(placement.set(std::vector<int32_t>{0, 0, 1, 0}, 2).ok());
  std::set<int32_t> places;
  for (int32_t source = 0; source < 3; ++source)
    places.insert(placement.place(std::vector<int32_t>{0}, source)[0]);
  CHECK(places == std::set<int32_t>{0, 1, 3});
}

TEST_CASE("a placement names each expert, and no other") {
  Placement placement;
  CHECK(placement.set(std::vector<int32_t>{0, 2, 2}, 3).error().message ==
        "expert 1 has no place, expected at least one of 3");
  CHECK(placement.set(std::vector<int32_t>{0, 3, 2}, 3).error().message ==
        "place 1 has expert 3, expected 0 to 2");
  CHECK(placement.set(std::vector<int32_t>{0, -1, 2}, 3).error().message ==
        "place 1 has expert -1, expected 0 to 2");
}

TEST_CASE("8 spare places flatten a rank with 6 times the mean of 8") {
  const ExpertDeal deal{{.ep = 8}, 64 + 8};
  std::vector<double> rows(64, 2.0 / 56);
  std::fill_n(rows.begin(), 8, 6.0 / 8);
  const ExpertDeal without{{.ep = 8}, 64};
  std::vector<int32_t> inOrder(64);
  for (int32_t expert = 0; expert < 64; ++expert) inOrder[static_cast<size_t>(expert)] = expert;
  CHECK(spread(inOrder, rows, without) == Approx(6));
  CHECK(spread(choosePlaces(rows, deal), rows, deal) < 1.3);
}

// Ids [512, 2] of each of 8 sources: those of the first 8 of 64 experts are 6 of 8.
std::vector<std::vector<int32_t>> drawSkewedIds(std::mt19937& random) {
  std::vector<std::vector<int32_t>> ids(8);
  for (std::vector<int32_t>& own : ids)
    for (int token = 0; token < 512; ++token) {
      const auto draw = [&] {
        return static_cast<int32_t>(random() % 8 < 6 ? random() % 8 : 8 + random() % 56);
      };
      own.push_back(draw());
      int32_t second = draw();
      while (second == own.back()) second = draw();
      own.push_back(second);
    }
  return ids;
}

// Rows of the rank with the most over the mean, as they arrive.
double skewOf(const std::vector<std::vector<int32_t>>& ids, const std::vector<int32_t>& expertAt,
              const ExpertDeal& deal) {
  Placement placement;
  REQUIRE(placement.set(expertAt, 64).ok());
  std::vector<double> rows(8);
  for (int32_t source = 0; source < 8; ++source)
    for (const int32_t place : placement.place(ids[static_cast<size_t>(source)], source))
      ++rows[static_cast<size_t>(deal.owner(place))];
  return *std::max_element(rows.begin(), rows.end()) / (8 * 512 * 2 / 8.0);
}

TEST_CASE("places that earlier rows chose flatten the rows of later steps") {
  std::mt19937 random(5);
  const ExpertDeal without{{.ep = 8}, 64}, deal{{.ep = 8}, 64 + 8};
  std::vector<int32_t> inOrder(64);
  std::iota(inOrder.begin(), inOrder.end(), 0);
  std::vector<double> rows(64);
  for (const std::vector<int32_t>& own : drawSkewedIds(random))
    for (const int32_t id : own) ++rows[static_cast<size_t>(id)];
  const std::vector<int32_t> chosen = choosePlaces(rows, deal);
  double most = 0;
  for (int step = 0; step < 20; ++step) {
    const std::vector<std::vector<int32_t>> ids = drawSkewedIds(random);
    CHECK(skewOf(ids, inOrder, without) > 5.8);
    most = std::max(most, skewOf(ids, chosen, deal));
  }
  std::printf(
      "rows of the hottest of 8 ranks over the mean: 6.00 in order, at most %.2f of 20 steps with 8 spare "
      "places\n",
      most);
  CHECK(most < 1.3);
}

TEST_CASE("chosen places hold every expert") {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    ExpertDeal deal{
        {.ep = static_cast<int32_t>(1 + random() % 6), .tp = static_cast<int32_t>(1 + random() % 3)}, 0};
    const auto experts = static_cast<int32_t>(1 + random() % 40);
    deal.experts = experts + static_cast<int32_t>(random() % 9);
    std::vector<double> rows;
    for (int32_t expert = 0; expert < experts; ++expert)
      rows.push_back(random() % 4 == 0 ? 0 : std::pow(1.0 + random() % 50, 2));
    const std::vector<int32_t> expertAt = choosePlaces(rows, deal);
    REQUIRE(expertAt.size() == static_cast<size_t>(deal.experts));
    Placement placement;
    REQUIRE(placement.set(expertAt, experts).ok());
    REQUIRE(choosePlaces(rows, deal) == expertAt);
  }
}

}  // namespace
}  // namespace sluice
