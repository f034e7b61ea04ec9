#include "tools/launch/rank_variables.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

namespace sluice::tools {
namespace {

Variables variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> const char* {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

std::string rankError(std::map<std::string, std::string> values) {
  const auto given = findGivenRank(variables(std::move(values)));
  return given ? "none" : given.error().message;
}

std::string jobError(std::map<std::string, std::string> values) {
  const auto name = findJobName(variables(std::move(values)));
  return name ? "none: " + *name : name.error().message;
}

TEST_CASE("a process without variables is no rank") {
  CHECK_FALSE(findGivenRank(variables({}))->has_value());
  CHECK_FALSE(isStartedByMpi(variables({{"RANK", "1"}})));
}

TEST_CASE("RANK and WORLD_SIZE say which rank a process is") {
  const auto given = findGivenRank(variables({{"RANK", "3"}, {"WORLD_SIZE", "4"}}));
  REQUIRE(given->has_value());
  CHECK((*given)->rank == 3);
  CHECK((*given)->size == 4);
}

TEST_CASE("what is wrong with a variable is said with its name, what was found and what was expected") {
  CHECK(rankError({{"RANK", "abc"}, {"WORLD_SIZE", "4"}}) ==
        "variable RANK: found 'abc', expected a number from 0 to 3, by WORLD_SIZE=4");
  for (const char* rank : {"4", "-1", "", "1 ", "0x1", "99999999999999999999"})
    CHECK(
        rankError({{"RANK", rank}, {"WORLD_SIZE", "4"}}).find(std::string("variable RANK: found '") + rank) ==
        0);
  for (const char* size : {"0", "-4", "", "many"})
    CHECK(rankError({{"RANK", "0"}, {"WORLD_SIZE", size}}).find("variable WORLD_SIZE: found '") == 0);
  CHECK(rankError({{"RANK", "1"}}) ==
        "variable WORLD_SIZE: found none, but RANK=1, expected both or neither");
  CHECK(rankError({{"WORLD_SIZE", "2"}}) ==
        "variable RANK: found none, but WORLD_SIZE=2, expected both or neither");
}

TEST_CASE("a job has the name that is set, or that of torchrun's meeting point") {
  CHECK(*findJobName(variables({{"SLUICE_JOB", "mine"}, {"MASTER_ADDR", "192.0.2.1"}})) == "mine");
  CHECK(*findJobName(variables({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}})) ==
        "127.0.0.1:29500");
  const auto restarted = findJobName(variables({{"MASTER_ADDR", "localhost"},
                                                {"MASTER_PORT", "29500"},
                                                {"TORCHELASTIC_RUN_ID", "run"},
                                                {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                {"WORLD_SIZE", "2"},
                                                {"LOCAL_WORLD_SIZE", "2"}}));
  CHECK(std::string_view(*restarted) == "localhost:29500:run:1");
}

TEST_CASE("long names of jobs are cut and stay apart") {
  const std::string common(100, 'j');
  const auto name = [&](const std::string& end) {
    return *findJobName(variables({{"SLUICE_JOB", common + end}}));
  };
  CHECK(name("1").size() == 64);
  CHECK(name("1") == name("1"));
  CHECK(name("1") != name("2"));
}

TEST_CASE("a rank without a job is told what to set") {
  for (const std::map<std::string, std::string>& values :
       {std::map<std::string, std::string>{}, {{"MASTER_ADDR", "localhost"}}, {{"SLUICE_JOB", ""}}}) {
    CHECK(jobError(values).find("set SLUICE_JOB to a name") != std::string::npos);
    CHECK(jobError(values).find("or MASTER_ADDR and MASTER_PORT") != std::string::npos);
  }
}

TEST_CASE("ranks of several machines are sent to MPI") {
  CHECK(
      jobError({{"MASTER_ADDR", "192.0.2.1"}, {"MASTER_PORT", "1"}}) ==
      "variable MASTER_ADDR: found '192.0.2.1', which is not this machine: shared memory needs one machine, "
      "use --transport mpi");
  CHECK(jobError({{"MASTER_ADDR", "localhost"},
                  {"MASTER_PORT", "1"},
                  {"WORLD_SIZE", "8"},
                  {"LOCAL_WORLD_SIZE", "4"}})
            .find("found 4 of 8 ranks on this machine") != std::string::npos);
}

TEST_CASE("this machine is known by its name and its addresses") {
  char name[256] = {};
  REQUIRE(::gethostname(name, sizeof(name) - 1) == 0);
  CHECK(isThisMachine(name));
  CHECK(isThisMachine(std::string(name) + ".example"));
  CHECK(isThisMachine("localhost"));
  CHECK(isThisMachine("127.0.0.1"));
  CHECK_FALSE(isThisMachine("192.0.2.1"));
}

TEST_CASE("a process that mpirun started knows it") {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    CHECK(isStartedByMpi(variables({{name, "2"}})));
}

}  // namespace
}  // namespace sluice::tools
