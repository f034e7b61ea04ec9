#define CATCH_CONFIG_RUNNER
#include "tests/testing/catch_runner.h"

#include <catch2/catch.hpp>

namespace sluice {

int runCases(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace sluice
