#include <catch2/catch.hpp>

#include "tools/launch/launch.h"

namespace sluice::tools {
namespace {

TEST_CASE("lines are shown with their rank, whole, however they come") {
  Relay relay(3);
  CHECK(relay.add(1, "one\ntw").find("tw") == std::string::npos);
  CHECK(relay.add(2, "other\n") == "[rank 2] other\n");
  CHECK(relay.add(1, "o\n\n") == "[rank 1] two\n[rank 1] \n");
  CHECK(relay.finish(1).empty());
}

TEST_CASE("a line that its rank did not end is shown when the rank has ended") {
  Relay relay(2);
  CHECK(relay.add(0, "half").empty());
  CHECK_FALSE(relay.hasShown());
  CHECK(relay.finish(0) == "[rank 0] half\n");
  CHECK(relay.hasShown());
}

TEST_CASE("an error that ranks have in common is shown once, other lines as often as they come") {
  Relay relay(2);
  CHECK(relay.add(0, "sluice: error: a\n") == "[rank 0] sluice: error: a\n");
  CHECK(relay.add(1, "sluice: error: a\nsluice: error: b\n") == "[rank 1] sluice: error: b\n");
  CHECK(relay.add(0, "note\n") == "[rank 0] note\n");
  CHECK(relay.add(1, "note\n") == "[rank 1] note\n");
}

TEST_CASE("an error that names a rank is not given another one") {
  Relay relay(3);
  CHECK(relay.add(2, "sluice: error: rank 0: a\n") == "sluice: error: rank 0: a\n");
  CHECK(relay.add(0, "sluice: error: rank 0: a\n").empty());
}

TEST_CASE("one rank alone is shown as it is") {
  Relay relay(1);
  CHECK(relay.add(0, "sluice: error: a\n") == "sluice: error: a\n");
}

TEST_CASE("a line without an end does not fill the memory") {
  Relay relay(2);
  size_t shown = 0;
  for (int i = 0; i < 100; ++i) shown += relay.add(0, std::string(4096, 'x')).size();
  CHECK(shown >= 99 * 4096 - (1 << 16));
}

}  // namespace
}  // namespace sluice::tools
