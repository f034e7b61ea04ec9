#include "compiler/target/target.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/machine.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

std::string cpuText() {
  std::ifstream file("targets/cpu.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder with one file, `name`.
std::string folderWith(const std::string& name, const std::string& content) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + name) << content;
  return folder;
}

std::string targetError(const std::string& content) {
  const Expected<Target> target = loadTarget(folderWith("bad.json", content) + "/bad.json", {});
  return target ? "loaded" : target.error().message;
}

// cpu.json with `from` replaced.
std::string damaged(const std::string& from, const std::string& to) {
  std::string text = cpuText();
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("cpu.json is a device model") {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("cpu", folders);
  if (!target) FAIL(target.error().message);
  CHECK(target->name == "cpu");
  CHECK(target->cores == 8);
  CHECK(target->slotRows == 128);
  CHECK(target->tokenSlot == 32);
  CHECK(target->tiles.gmmColumns == 256);
  CHECK(target->windows.experts == 1);
}

TEST_CASE("ascend910b.json has separate cube and vector cores") {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("ascend910b", folders);
  if (!target) FAIL(target.error().message);
  CHECK(target->name == "ascend910b");
  CHECK(target->cubeCores == 24);
  CHECK(target->vectorCores == 48);
  CHECK(loadTarget("cpu", folders)->cubeCores == 0);
  CHECK_THAT(targetError(damaged("\"unified\"", "\"separate\"")),
             Contains("'cube_cores' is missing or wrong"));
}

TEST_CASE("every shipped target has rates, and a file without any has none") {
  const std::vector<std::string> folders = {"targets"};
  for (const char* name : {"cpu", "ascend910b", "h200"}) {
    const Expected<Target> target = loadTarget(name, folders);
    if (!target) FAIL(target.error().message);
    INFO(name);
    REQUIRE(target->rates);
    CHECK(target->rates->matrix.gmm.flops > 1e11);
    CHECK(target->rates->memory.sharedRead >= target->rates->memory.coreRead);
    CHECK(target->rates->caches.core > 0);
  }
  const std::string text = cpuText();
  const std::string bare = text.substr(0, text.find(",\n  \"matrix\"")) + "}";
  const Expected<Target> target = loadTarget(folderWith("bare.json", bare) + "/bare.json", {});
  if (!target) FAIL(target.error().message);
  CHECK(!target->rates);
}

TEST_CASE("a wrong, missing or unknown rate is named with its file") {
  CHECK_THAT(targetError(damaged("\"core_spill\"", "\"spill\"")),
             Contains("bad.json: error: unknown 'caches.spill', expected core, core_spill, shared"));
  CHECK_THAT(targetError(damaged("\"flops\": ", "\"flops\": -")), Contains("'matrix.gmm.flops'"));
  CHECK_THAT(targetError(damaged("\"overlap\": 0.0791", "\"overlap\": 2")), Contains("'memory.overlap'"));
  CHECK_THAT(targetError(damaged("\"overlap\": 0.0791", "\"overlap\": \"no\"")), Contains("from 0 to 1"));
  CHECK_THAT(targetError(damaged("\"link\"", "\"lines\"")), Contains("unknown 'lines'"));
  CHECK_THAT(targetError(damaged("\"windows\": {", "\"windows\": {\"why\": 1,")),
             Contains("unknown 'windows.why'"));
}

TEST_CASE("cores that only communicate are those of a target with vector cores") {
  const auto with = [](const std::string& count) {
    std::ifstream file("targets/ascend910b.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string from = "\"communication_cores\": {\n    \"value\": 8";
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), "\"communication_cores\": {\n    \"value\": " + count);
  };
  const Expected<Target> target = loadTarget(folderWith("twelve.json", with("12")) + "/twelve.json", {});
  if (!target) FAIL(target.error().message);
  CHECK(target->communicationCores == 12);
  CHECK_THAT(targetError(with("48")),
             Contains("'communication_cores' is missing or wrong, expected a number from 0 to 47"));
  CHECK_THAT(targetError(damaged("\"cores\": {", "\"communication_cores\": {}, \"cores\": {")),
             Contains("unknown 'communication_cores'"));
}

TEST_CASE("targets are looked for in order, and a path is taken as it is") {
  const std::string first = folderWith("cpu.json", damaged("\"value\": 8", "\"value\": 3"));
  const std::vector<std::string> folders = {"nowhere", first, "targets"};
  CHECK(loadTarget("cpu", folders)->cores == 3);
  CHECK(loadTarget("targets/cpu.json", folders)->cores == 8);
}

TEST_CASE("native is the model that was measured for a processor, and cpu where there is none") {
  const std::vector<std::string> none;
  CHECK(targetFor("AuthenticAMD 26 2", none)->name == "zen5");
  CHECK(targetFor("AuthenticAMD 25 33", none)->name == "zen3");
  CHECK(targetFor("AuthenticAMD 25 17", none)->name == "cpu");
  CHECK(targetFor("AuthenticAMD 265 2", none)->name == "cpu");
  CHECK(targetFor("GenuineIntel 6 143", none)->name == "cpu");
  CHECK(targetFor("", none)->name == "cpu");
  CHECK(loadTarget("native", none)->name == targetFor(processorModel(), none)->name);
  const auto withProcessors = [](const std::string& value) {
    return damaged("\"core_kind\"",
                   "\"processors\": {\"value\": " + value + ", \"source\": \"\"}, \"core_kind\"");
  };
  const std::vector<std::string> own = {
      folderWith("mine.json", withProcessors("[\"GenuineIntel 6 143\", \"AuthenticAMD 26\"]"))};
  CHECK(targetFor("GenuineIntel 6 143", own)->processors.size() == 2);
  CHECK(targetFor("GenuineIntel 6 14", own)->processors.empty());
  CHECK(targetFor("AuthenticAMD 25 17", own)->processors.empty());
  for (const char* wrong : {"\"AuthenticAMD 26\"", "[]", "[26]", "{}"})
    CHECK_THAT(targetError(withProcessors(wrong)),
               Contains("'processors' is missing or wrong, expected an array of texts"));
  const std::vector<std::string> broken = {folderWith("mine.json", withProcessors("[]"))};
  CHECK_THAT(targetFor("", broken).error().message, Contains("processors"));
}

TEST_CASE("all files of the folder targets are inside of the program, and a file comes first") {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("targets")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem();
    INFO(name);
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto shipped = std::ranges::find(shippedTargets(), name, &ShippedTarget::name);
    REQUIRE(shipped != shippedTargets().end());
    CHECK(std::string(shipped->text) + "\n" == text);
    const Expected<Target> target = loadTarget(name, {});
    if (!target) FAIL(target.error().message);
    CHECK(target->name == name);
    ++files;
  }
  CHECK(files == shippedTargets().size());
  CHECK(loadTarget("cpu", {})->cores == 8);
  const std::vector<std::string> own = {folderWith("cpu.json", damaged("\"value\": 8", "\"value\": 5"))};
  CHECK(loadTarget("cpu", own)->cores == 5);
}

TEST_CASE("an unknown target lists those there are") {
  const std::vector<std::string> folders = {"nowhere", "targets"};
  CHECK_THAT(loadTarget("gpu", folders).error().message,
             Contains("unknown target 'gpu', available: ascend910b, cpu, h200, zen3, zen5, or native"));
  CHECK_THAT(loadTarget("gpu", {}).error().message,
             Contains("available: ascend910b, cpu, h200, zen3, zen5, or native"));
  CHECK_THAT(loadTarget("../targets/cpu", folders).error().message, Contains("unknown target"));
  CHECK_THAT(loadTarget("missing.json", folders).error().message,
             Contains("missing.json: error: no such target file"));
}

TEST_CASE("a damaged device model is refused with the field") {
  CHECK_THAT(targetError("{"), Contains("bad.json: error: is not a JSON object"));
  CHECK_THAT(targetError("[]"), Contains("is not a JSON object"));
  CHECK_THAT(targetError("{}"), Contains("'name' is missing or wrong, expected a string"));
  CHECK_THAT(targetError(damaged("\"cores\"", "\"kernels\"")), Contains("'cores' is missing or wrong"));
  CHECK_THAT(targetError(damaged("\"value\": 8", "\"value\": 0")),
             Contains("'cores' is missing or wrong, expected a number"));
  CHECK_THAT(targetError(damaged("\"value\": 128", "\"value\": 100")), Contains("'slot_rows'"));
  CHECK_THAT(targetError(damaged("\"value\": 128", "\"value\": 1e99")), Contains("'slot_rows'"));
  CHECK_THAT(targetError(damaged("[256, 256]", "[256]")), Contains("'weight_grad_tile'"));
  CHECK_THAT(targetError(damaged("\"unified\"", "\"cube\"")), Contains("'core_kind'"));
  CHECK_THAT(targetError(damaged("\"sends\"", "\"sent\"")), Contains("'windows.sends'"));
}

}  // namespace
}  // namespace sluice
