#include "runtime/workers/core_claims.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

namespace sluice {
namespace {

// Sandboxes that run at the same time share the name space.
std::string anyName() { return "test-" + std::to_string(std::random_device{}()); }

TEST_CASE("a unit that another process has is not taken, until that gives it back") {
  const std::string name = anyName();
  const std::vector<int> units = {3, 5};
  CoreClaims one(name), other(name);  // that they share a process they do not know
  CHECK(one.take(units) == 3);
  CHECK(other.take(units) == 5);
  CHECK(other.take(std::vector<int>{3}) == -1);
  one.release(3);
  CHECK(other.take(std::vector<int>{3}) == 3);
}

TEST_CASE("a process uses its own units evenly, the first ones first") {
  CoreClaims claims(anyName());
  const std::vector<int> units = {1, 0};
  CHECK(claims.take(units) == 1);
  CHECK(claims.take(units) == 0);
  CHECK(claims.take(units) == 1);
  claims.release(0);
  CHECK(claims.take(units) == 0);
}

TEST_CASE("a unit is kept as long as anything of the process uses it") {
  const std::string name = anyName();
  CoreClaims one(name), other(name);
  const std::vector<int> unit = {7};
  REQUIRE(one.take(unit) == 7);
  REQUIRE(one.take(unit) == 7);
  one.release(7);
  CHECK(other.take(unit) == -1);
  one.release(7);
  CHECK(other.take(unit) == 7);
}

TEST_CASE("what a process had is free when it was killed") {
  const std::string name = anyName();
  const std::vector<int> unit = {2};
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    CoreClaims claims(name);
    const char took = claims.take(unit) == 2 ? 'y' : 'n';
    if (write(ready[1], &took, 1) != 1) _exit(1);
    pause();
  }
  char took = 0;
  REQUIRE(read(ready[0], &took, 1) == 1);
  REQUIRE(took == 'y');
  CoreClaims claims(name);
  CHECK(claims.take(unit) == -1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(claims.take(unit) == 2);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace sluice
