#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tools/doctor/doctor.h"

namespace sluice::tools {
namespace {

const Diagnosis kDiagnosis{
    "sluice 9",
    {{"cores", FindingState::kFact, "2", ""}},
    {{"MPI", FindingState::kMissing, "no mpirun", "install it"}, {"UCX", FindingState::kWorks, "1.13", ""}},
    {{"compile", FindingState::kWorks, "", ""}, {"run", FindingState::kFails, "no \"luck\"\xff", ""}},
    false};

TEST_CASE("findings are lines of text, with what would change them") {
  CHECK(diagnosisText(kDiagnosis) ==
        "sluice 9\n\nthis machine\n  cores         2\n\noptional parts\n  missing  MPI: no mpirun\n"
        "           to change it: install it\n  works    UCX: 1.13\n\ntried here\n  works    compile\n"
        "  FAILS    run: no \"luck\"\xff\n\nthe main job does not work here\n");
}

TEST_CASE("the JSON has the same, whatever bytes a message has") {
  const auto json = nlohmann::json::parse(diagnosisJson(kDiagnosis));
  CHECK(json["works"] == false);
  CHECK(json["machine"][0] == nlohmann::json({{"name", "cores"}, {"found", "2"}}));
  CHECK(json["parts"][0]["change"] == "install it");
  CHECK(json["tried"][1]["state"] == "FAILS");
}

TEST_CASE("the main job does not need mpirun, but all else") {
  const Finding good{"a", FindingState::kWorks, "", ""}, bad{"b", FindingState::kFails, "", ""},
      mpi{"2 ranks started by mpirun, the same bytes", FindingState::kFails, "", ""};
  CHECK(worksAlone({good, mpi}));
  CHECK(!worksAlone({good, bad}));
}

}  // namespace
}  // namespace sluice::tools
