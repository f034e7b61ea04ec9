// Base64 against the examples of RFC 4648, and back.
#include "runtime/base/base64.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

std::span<const std::byte> bytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_CASE("bytes become base64 and back") {
  const std::pair<std::string_view, std::string_view> examples[] = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {"\xff\xfe\x7f", "//5/"}};
  for (const auto& [text, coded] : examples) {
    CHECK(toBase64(bytesOf(text)) == coded);
    const auto back = fromBase64(coded);
    REQUIRE(back);
    CHECK(std::ranges::equal(*back, bytesOf(text)));
  }
}

TEST_CASE("what is not base64 is refused") {
  for (const std::string_view text : {"Z", "Zg", "Zg=", "Z===", "Zm9v=", "Zm 9", "Zg==Zg==", "Zm\n9", "===="})
    CHECK_FALSE(fromBase64(text));
}

}  // namespace
}  // namespace sluice
