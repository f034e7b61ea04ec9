#include "compiler/target/expect.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/one_line.h"
#include "runtime/program/program.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kMaxPredictionBytes = 4 << 20;
constexpr double kMaxExponent = 10;
constexpr double kMaxShare = 1e15;

Expected<Expectation> readZipf(const std::string& text, std::string_view exponent) {
  Expectation expectation;
  expectation.name = text;
  const char* const end = exponent.data() + exponent.size();
  const auto [rest, error] = std::from_chars(exponent.data(), end, expectation.exponent);
  if (error != std::errc() || rest != end || !(expectation.exponent >= 0) ||
      expectation.exponent > kMaxExponent)
    return Error{fmt::format("error: '{}' is not zipf:EXPONENT with a number from 0 to {}", oneLine(text),
                             static_cast<int>(kMaxExponent))};
  return expectation;
}

Expected<Expectation> readShares(const std::string& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed) || fs::file_size(path, failed) > kMaxPredictionBytes || failed)
    return Error{fmt::format("error: '{}' is neither uniform nor zipf:EXPONENT, nor a file of at most 4 MiB",
                             oneLine(path))};
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  const Json root = Json::parse(content.str(), nullptr, false);
  if (!root.is_array() || root.empty() || root.size() > static_cast<size_t>(kMaxExperts))
    return Error{fmt::format("{}: error: is not a JSON list of 1 to {} numbers", path, kMaxExperts)};
  Expectation expectation;
  expectation.name = path;
  double sum = 0;
  for (const Json& share : root) {
    const double value = share.is_number() ? share.get<double>() : -1;
    if (!(value >= 0 && value <= kMaxShare))
      return Error{fmt::format("{}: error: the share of expert {} is not a number from 0 to {:g}", path,
                               expectation.shares.size(), kMaxShare)};
    expectation.shares.push_back(value);
    sum += value;
  }
  if (sum <= 0) return Error{fmt::format("{}: error: all shares are 0, expected at least one above", path)};
  return expectation;
}

}  // namespace

Expected<Expectation> readExpectation(const std::string& text) {
  constexpr std::string_view kZipf = "zipf:";
  if (text == "uniform") return Expectation{};
  if (text.starts_with(kZipf)) return readZipf(text, std::string_view(text).substr(kZipf.size()));
  return readShares(text);
}

}  // namespace sluice
