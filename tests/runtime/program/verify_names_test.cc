#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>

#include "runtime/program/verify.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;
using SetName = std::function<void(TaskProgram&, const std::string&)>;

const std::string kBadNames[] = {"a\nb", "\x1b[2J",      "tab\t",         "\x7f",    std::string("nul\0", 4),
                                 "\xff", "cut \xe2\x82", "long \xc0\x80", "\xc2\x85"};

// By what the message calls it.
const std::pair<const char*, SetName> kNames[] = {
    {"program", [](TaskProgram& p, const std::string& name) { p.name = name; }},
    {"target", [](TaskProgram& p, const std::string& name) { p.target = name; }},
    {"symbol", [](TaskProgram& p, const std::string& name) { p.symbols.push_back({name, 1}); }},
    {"entry", [](TaskProgram& p, const std::string& name) { p.entries[0].name = name; }},
    {"region", [](TaskProgram& p, const std::string& name) { p.regions[0].name = name; }},
    {"buffer", [](TaskProgram& p, const std::string& name) { p.buffers[0].name = name; }},
    {"space", [](TaskProgram& p, const std::string& name) { p.spaces[0].name = name; }},
    {"event", [](TaskProgram& p, const std::string& name) { p.events[0].name = name; }},
    {"family", [](TaskProgram& p, const std::string& name) { p.families[0].name = name; }},
    {"lane", [](TaskProgram& p, const std::string& name) { p.lanes[0].name = name; }},
};

TEST_CASE("a name that would garble a message or a tensor file is refused, whatever it names") {
  for (const auto& [what, set] : kNames)
    for (const std::string& bad : kBadNames) {
      TaskProgram program = buildMoeProgram({});
      set(program, bad);
      const Expected<VerifiedProgram> verified = verify(program);
      INFO(what);
      REQUIRE(!verified);
      CHECK_THAT(verified.error().message, Contains(std::string(what) + " '"));
      CHECK_THAT(verified.error().message, Contains("\\x"));
      CHECK(verified.error().message.find(bad) == std::string::npos);
    }
}

TEST_CASE("names in any script are taken") {
  for (const auto& [what, set] : kNames) {
    TaskProgram program = buildMoeProgram({});
    set(program, "Zeilen \xc3\xa9 \xe2\x82\xac");
    INFO(what);
    CHECK(verify(program).ok());
  }
}

TEST_CASE("a buffer cannot have a name that tensor files reserve") {
  TaskProgram program = buildMoeProgram({});
  program.buffers[0].name = "__metadata__";
  const Expected<VerifiedProgram> verified = verify(program);
  REQUIRE(!verified);
  CHECK(verified.error().message ==
        "buffer '__metadata__': found a name that tensor files reserve, expected another");
}

}  // namespace
}  // namespace sluice
