// The graphs of graphs/moe_ffn, and damaged ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/program/words.h"
#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using namespace std::string_view_literals;
using Set = std::pair<std::string, int64_t>;

using testing::errorOf;
using testing::irOfFile;

std::string textOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

TEST_CASE("the backward graph has the seven nodes of the reference and a route") {
  const std::string ir = irOfFile("backward.json");
  size_t at = 0;
  for (const char* node : {"route", "dispatch", "act_grad", "down_weight_grad", "swiglu_grad", "gate_grad",
                           "combine", "gate_up_weight_grad"}) {
    INFO(node);
    at = ir.find("\"" + std::string(node) + "\"", at);
    REQUIRE(at != std::string::npos);
  }
}

TEST_CASE("the graphs take every allowed size of a large model") {
  const std::array sets = {Set("ep", 64), Set("experts", 256), Set("hidden", 7168),
                           Set("intermediate", 2048)};
  for (const char* name : {"forward.json", "backward.json", "train.json", "shared_expert.json", "lora.json",
                           "two_gmms.json", "biased.json"}) {
    INFO(name);
    const std::string ir = irOfFile(name, {sets});
    CHECK(ir.find("ranks = 64 experts = 256") != std::string::npos);
    CHECK(ir.find("\"gate_up_weight\" : !moe.tensor<4 x 7168 x 4096 x bf16>") != std::string::npos);
  }
}

TEST_CASE("the forward graph is one of every activation, by name and kind") {
  for (const std::string& kind : text::listWords(ActivationKind{})) {
    const std::array<std::pair<std::string, std::string>, 1> words = {{{"activation", kind}}};
    const std::string ir = irOfFile("forward.json", {.words = words});
    INFO(ir);
    CHECK(ir.find("moe.activation \"" + kind + "\"  " + kind + "(%gate_up)") != std::string::npos);
    CHECK((ir.find("limit 7.0") != std::string::npos) == (kind == "swiglu_clamp" || kind == "swiglu_oai"));
  }
}

TEST_CASE("every graph of the layer has the columns and the names of its activation") {
  for (const auto& [kind, columns] : {std::pair("relu2", 96), {"silu", 96}, {"geglu", 192}})
    for (const char* name : {"forward.json", "backward.json", "train.json", "shared_expert.json", "lora.json",
                             "two_gmms.json", "biased.json"}) {
      const std::array<std::pair<std::string, std::string>, 1> words = {{{"activation", kind}}};
      const std::array sets = {Set("tp", 2), Set("experts", 4), Set("top_k", 2), Set("hidden", 64),
                               Set("intermediate", 192)};
      const std::string ir = irOfFile(name, {sets, words});
      INFO(name << ": " << ir);
      CHECK(ir.find(fmt::format("moe.input \"gate_up_weight\" shard  {} : !moe.tensor<4 x 64 x {} x bf16>",
                                columns == 96 ? "columns" : "gate_up_columns", columns)) !=
            std::string::npos);
      CHECK(ir.find(fmt::format("\"{}{}\"  {}(", kind, name == "backward.json"sv ? "_grad" : "", kind)) !=
            std::string::npos);
      CHECK(ir.find("swiglu") == std::string::npos);
    }
}

TEST_CASE("the example of FORMAT.md is a graph, and its error message is one") {
  const std::string page = textOf("graphs/FORMAT.md");
  const size_t begin = page.find("```json\n") + 8;
  std::string text = page.substr(begin, page.find("```", begin) - begin);
  CHECK(errorOf(text) == "no error");
  const std::string_view right = "{\"rows\": \"rows\", \"weight\"";
  REQUIRE(text.find(right) != std::string::npos);
  text.replace(text.find(right), right.size(), "{\"rows\": \"row\", \"weight\"");
  mlir::MLIRContext context;
  const auto wrong = readGraphText(text, "layer.json", {}, context);
  REQUIRE(!wrong.ok());
  INFO(wrong.error().message);
  CHECK(page.find("\n" + wrong.error().message + "\n") != std::string::npos);
}

TEST_CASE("every truncation of a graph is an error with a position") {
  const std::string text = textOf("graphs/moe_ffn/train.json");
  const size_t last = text.find_last_of('}');
  for (size_t length = 0; length <= last; length += length < 200 ? 1 : 7) {
    REQUIRE(errorOf(text.substr(0, length)).starts_with("g.json:"));
  }
}

TEST_CASE("damaged graphs are graphs or errors, never crashes") {
  const std::string text = textOf("graphs/moe_ffn/train.json");
  std::mt19937 random(1);
  const std::string_view bytes = "\0\x01\"\\{}[],:0-9eTR/*\xff\x80 \n"sv;
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    const size_t at = random() % damaged.size();
    switch (random() % 3) {
      case 0:
        damaged[at] = bytes[random() % bytes.size()];
        break;
      case 1:
        damaged.erase(at, 1 + random() % 8);
        break;
      default:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    }
    const std::string error = errorOf(damaged);
    if (error == "no error") continue;
    ++errors;
    REQUIRE(error.starts_with("g.json:"));
  }
  CHECK(errors > 2000);
}

}  // namespace
}  // namespace sluice
