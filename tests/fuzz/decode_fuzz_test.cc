#include "tests/fuzz/decode_fuzz.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "runtime/program/codec.h"
#include "tests/runtime/program/dense_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Input = std::vector<uint8_t>;

void feed(const Input& input) { CHECK(LLVMFuzzerTestOneInput(input.data(), input.size()) == 0); }

Input bytesOf(const TaskProgram& program) {
  const std::vector<std::byte> bytes = encode(program);
  Input input(bytes.size());
  std::transform(bytes.begin(), bytes.end(), input.begin(), [](std::byte byte) { return uint8_t(byte); });
  return input;
}

TEST_CASE("every file of the corpus is decoded or refused") {
  size_t files = 0;
  for (const char* folder : {"tests/fuzz/corpus", "tests/runtime/program/golden"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      INFO(entry.path());
      std::ifstream file(entry.path(), std::ios::binary);
      feed(Input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
      ++files;
    }
  }
  CHECK(files >= 2);
}

TEST_CASE("damaged valid programs are decoded and verified, or refused") {
  const MoeShape shape{.ranks = 2, .window = 2};
  const Input all[] = {bytesOf(buildMoeProgram(shape)), bytesOf(buildDenseProgram(shape, false)),
                       bytesOf(buildDenseProgram(shape, true))};
  std::mt19937 random(7);
  for (const Input& good : all) feed(good);
  for (int round = 0; round < 900; ++round) {
    Input input = all[round % 3];
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      static constexpr uint8_t kValues[] = {0, 1, 2, 0x7f, 0x80, 0xff};
      input[random() % input.size()] = random() % 2 ? static_cast<uint8_t>(random()) : kValues[random() % 6];
    }
    feed(input);
  }
}

}  // namespace
}  // namespace sluice
