#include <catch2/catch.hpp>

#include "tools/plan/plan.h"

namespace sluice::tools {
namespace {

TEST_CASE("numbers of ranks double up to the last that fits") {
  CHECK(parseRanks("8..64")->ranks() == std::vector<int>{8, 16, 32, 64});
  CHECK(parseRanks("3..20")->ranks() == std::vector<int>{3, 6, 12});
  CHECK(parseRanks("5")->ranks() == std::vector<int>{5});
  CHECK(parseRanks("4096")->ranks() == std::vector<int>{4096});
  for (const char* const wrong :
       {"", "0", "-1", "8..", "..8", "8..4", "8-16", "8..16x", "5000", "8..5000", "x"})
    CHECK(!parseRanks(wrong));
}

TEST_CASE("tp is a list of numbers") {
  CHECK(*parseTp("1,2,4") == std::vector<int>{1, 2, 4});
  CHECK(*parseTp("8") == std::vector<int>{8});
  for (const char* const wrong : {"", ",", "1,", ",1", "1,,2", "0", "1 2", "a", "99999"})
    CHECK(!parseTp(wrong));
}

TEST_CASE("a layout shares experts and columns evenly, and every rank has an expert") {
  LayerCase layer{.name = "l", .hidden = 64, .inter = 12, .experts = 8, .topK = 2, .tokens = 16};
  std::vector<std::pair<int, int>> found;
  for (const Layout& layout : listLayouts(layer, *parseRanks("4..32"), {1, 2, 4, 8}))
    found.emplace_back(layout.ep, layout.tp);
  // tp 8 does not divide 12 columns; 16 ranks with tp 1, and 32 with tp 1 or 2, are more than 8 experts
  CHECK(found == std::vector<std::pair<int, int>>{
                     {4, 1}, {2, 2}, {1, 4}, {8, 1}, {4, 2}, {2, 4}, {8, 2}, {4, 4}, {8, 4}});
}

TEST_CASE("rows of slots are multiples of 16, or the compiler's choice") {
  CHECK(*parseSlotRows("64,128,256") == std::vector<int>{64, 128, 256});
  CHECK(*parseSlotRows("auto,65536") == std::vector<int>{0, 65536});
  for (const char* const wrong :
       {"", ",", "64,", ",64", "0", "8", "100", "65552", "-16", "64 128", "autos", "x"})
    CHECK(!parseSlotRows(wrong));
}

TEST_CASE("each layout has all rows of slots") {
  LayerCase layer{.name = "l", .hidden = 64, .inter = 12, .experts = 8, .topK = 2, .tokens = 16};
  std::vector<std::pair<int, int>> found;
  for (const Layout& layout : listLayouts(layer, *parseRanks("4"), {1, 2}, {0, 64}))
    found.emplace_back(layout.tp, layout.slotRows);
  CHECK(found == std::vector<std::pair<int, int>>{{1, 0}, {1, 64}, {2, 0}, {2, 64}});
}

}  // namespace
}  // namespace sluice::tools
