#include "runtime/base/scratch_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

namespace sluice {
namespace {

TEST_CASE("a scratch folder goes with its files, and moves with its owner") {
  std::string path;
  {
    Expected<ScratchFolder> made = ScratchFolder::create("sluice-test");
    REQUIRE(made);
    std::optional<ScratchFolder> folder(std::move(*made));
    path = folder->path();
    CHECK(path.find("/sluice-test-") != std::string::npos);
    CHECK(std::filesystem::is_directory(path));
    std::filesystem::create_directory(path + "/deeper");
    std::ofstream(path + "/deeper/file") << "x";
  }
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("where no folder can be made, the error names the place") {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/nothing/there", 1);
  const Expected<ScratchFolder> made = ScratchFolder::create("sluice-test");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
  REQUIRE(!made);
  CHECK(made.error().message.find("temporary") != std::string::npos);
}

}  // namespace
}  // namespace sluice
