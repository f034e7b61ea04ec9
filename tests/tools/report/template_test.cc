#include "tools/report/page/template.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

using sluice::tools::pageTemplate;

#ifdef SLUICE_HAS_PAGE

TEST_CASE("the template is the page as it was built, with one line for data") {
  std::ifstream file("tools/report/page/page.html", std::ios::binary);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  REQUIRE_FALSE(page.empty());
  CHECK(pageTemplate() == page);
  const size_t line = page.find("\n@DATA@\n");
  REQUIRE(line != std::string::npos);
  CHECK(page.find("@DATA@", line + 2) == std::string::npos);
}

#else

TEST_CASE("there is no template without esbuild and d3") { CHECK(pageTemplate().empty()); }

#endif
