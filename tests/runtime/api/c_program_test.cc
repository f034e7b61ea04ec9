// The functions of sluice.h on programs, versions and structures.
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "tests/runtime/api/c_layer.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

sluice_tensor_info tensorInfo(const Handle<sluice_program>& program, const char* name) {
  uint32_t index = 0;
  REQUIRE(sluice_program_find_tensor(program.get(), name, &index) == SLUICE_OK);
  sluice_tensor_info info{};
  info.size = sizeof info;
  REQUIRE(sluice_program_get_tensor(program.get(), index, &info) == SLUICE_OK);
  CHECK(info.name == std::string(name));
  return info;
}

sluice_entry_info entryInfo(const Handle<sluice_program>& program, uint32_t index) {
  sluice_entry_info info{};
  info.size = sizeof info;
  REQUIRE(sluice_program_get_entry(program.get(), index, &info) == SLUICE_OK);
  return info;
}

std::vector<std::string> tensorsOf(const Handle<sluice_program>& program, const sluice_entry_info& entry) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < entry.tensor_count; ++i) {
    sluice_tensor_info info{};
    info.size = sizeof info;
    REQUIRE(sluice_program_get_tensor(program.get(), entry.tensors[i], &info) == SLUICE_OK);
    names.push_back(info.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("the library says the version of the header, and statuses have names") {
  CHECK(sluice_abi_version() == SLUICE_ABI_VERSION);
  std::set<std::string> names;
  for (sluice_status status = SLUICE_OK; status <= SLUICE_ERROR_INTERNAL; ++status)
    names.insert(sluice_status_name(status));
  CHECK(names.size() == 7);
  CHECK(names.count("unknown") == 0);
  CHECK(sluice_status_name(-1) == std::string("unknown"));
  CHECK(sluice_type_bytes(SLUICE_BF16) == 2);
  CHECK(sluice_type_bytes(SLUICE_I64) == 8);
  CHECK(sluice_type_bytes(6) == 1);
  CHECK(sluice_type_bytes(SLUICE_F8_E4M3) == 1);
  CHECK(sluice_type_bytes(SLUICE_F8_E8M0) == 1);
  CHECK(sluice_type_bytes(9) == 0);
  CHECK(sluice_type_bytes(-1) == 0);
}

TEST_CASE("a program is read from a file, and from memory that may go afterwards") {
  const TaskProgram tables = buildMoeProgram({.ranks = 2});
  TemporaryFolder folder;
  REQUIRE(writeProgram(tables, folder.file("layer.slp")).ok());
  sluice_program* loaded = nullptr;
  REQUIRE(sluice_program_load(folder.file("layer.slp").c_str(), &loaded) == SLUICE_OK);
  Handle<sluice_program> file(loaded);

  std::vector<std::byte> bytes = encode(tables);
  Handle<sluice_program> memory = loadBytes(bytes);
  REQUIRE(memory);
  std::fill(bytes.begin(), bytes.end(), std::byte{0});

  sluice_program_info a{}, b{};
  a.size = b.size = sizeof a;
  REQUIRE(sluice_program_get_info(file.get(), &a) == SLUICE_OK);
  REQUIRE(sluice_program_get_info(memory.get(), &b) == SLUICE_OK);
  CHECK(a.fingerprint == b.fingerprint);
  CHECK(a.name == tables.name);
  CHECK(a.target == tables.target);
  CHECK(a.options == tables.options);
  CHECK(a.graph_hash == tables.graphHash);
  CHECK(a.ranks == 2);
  CHECK(a.experts == 4);
  CHECK(a.top_k == 2);
  CHECK(a.max_tokens == 64);
  CHECK(a.entry_count == 2);
}

TEST_CASE("tensors have their type, role and shape as a formula and as sizes at a rank") {
  const Handle<sluice_program> program = loadLayer({.ranks = 3, .experts = 8});
  const sluice_tensor_info x = tensorInfo(program, "x");
  CHECK(x.shape == std::string("[T, 32]"));
  CHECK(x.type == SLUICE_BF16);
  CHECK(x.role == SLUICE_INPUT);
  CHECK(x.owned == 0);
  REQUIRE(x.dim_count == 2);
  CHECK(x.dims[0].extent == SLUICE_TOKENS);
  CHECK(x.dims[1].extent == SLUICE_FIXED);
  CHECK(x.dims[1].size == 32);
  const sluice_tensor_info weight = tensorInfo(program, "down_weight");
  CHECK(weight.shape == std::string("[E, 24, 32]"));
  CHECK(weight.dims[0].extent == SLUICE_EXPERTS);
  CHECK(tensorInfo(program, "y").role == SLUICE_OUTPUT);
  CHECK(tensorInfo(program, "expert_ids").type == SLUICE_I32);
  CHECK(tensorInfo(program, "down_weight_grad").type == SLUICE_F32);
  CHECK(tensorInfo(program, "down_weight_grad").accumulates == 0);

  uint32_t index = 0;
  REQUIRE(sluice_program_find_tensor(program.get(), "down_weight", &index) == SLUICE_OK);
  int64_t dims[3] = {};
  REQUIRE(sluice_program_tensor_dims(program.get(), index, 0, 5, 0, dims, 3) == SLUICE_OK);
  CHECK(dims[0] == 3);
  CHECK(dims[1] == 24);
  REQUIRE(sluice_program_tensor_dims(program.get(), index, 2, 5, 0, dims, 3) == SLUICE_OK);
  CHECK(dims[0] == 2);
  REQUIRE(sluice_program_find_tensor(program.get(), "x", &index) == SLUICE_OK);
  REQUIRE(sluice_program_tensor_dims(program.get(), index, 2, 5, 0, dims, 3) == SLUICE_OK);
  CHECK(dims[0] == 5);

  CHECK(sluice_program_tensor_dims(program.get(), index, 3, 5, 0, dims, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("rank 3"));
  CHECK(sluice_program_tensor_dims(program.get(), index, -1, 5, 0, dims, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, 65, 0, dims, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("expected 0 to 64"));
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, -1, 0, dims, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, 5, -1, dims, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, 5, 0, dims, 1) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, 5, 0, dims, -1) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), index, 0, 5, 0, nullptr, 3) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_tensor_dims(program.get(), 99, 0, 5, 0, dims, 3) == SLUICE_ERROR_ARGUMENT);
}

TEST_CASE("entries say what is bound for them, how they route, and what is saved between them") {
  const Handle<sluice_program> program = loadLayer({.ranks = 2});
  const sluice_entry_info forward = entryInfo(program, 0);
  CHECK(forward.name == std::string("forward"));
  CHECK(forward.expert_ids == std::string("expert_ids"));
  CHECK(forward.routed_as == nullptr);
  CHECK(forward.saves == 1);
  CHECK(forward.uses_saved == 0);
  CHECK(tensorsOf(program, forward) ==
        std::vector<std::string>{"down_weight", "expert_ids", "expert_weights", "gate_up_weight", "x", "y"});
  const sluice_entry_info backward = entryInfo(program, 1);
  CHECK(backward.expert_ids == nullptr);
  CHECK(backward.routed_as == std::string("forward"));
  CHECK(backward.saves == 0);
  CHECK(backward.uses_saved == 1);

  const Handle<sluice_program> alone = loadLayer({.ranks = 2, .forwardOnly = true});
  CHECK(entryInfo(alone, 0).saves == 0);
}

TEST_CASE("what is no program is refused with a message, and gives no handle") {
  auto* program = reinterpret_cast<sluice_program*>(8);
  CHECK(sluice_program_load("/nonexistent/layer.slp", &program) == SLUICE_ERROR_FAILED);
  CHECK(program == nullptr);
  CHECK_THAT(sluice_last_error(), Contains("/nonexistent/layer.slp"));
  std::vector<std::byte> bytes = encode(buildMoeProgram({}));
  bytes.resize(bytes.size() / 2);
  CHECK(sluice_program_from_memory(bytes.data(), bytes.size(), &program) == SLUICE_ERROR_FAILED);
  CHECK(program == nullptr);
  CHECK(std::strlen(sluice_last_error()) > 0);
  CHECK(sluice_program_from_memory("", 0, &program) == SLUICE_ERROR_FAILED);
}

TEST_CASE("null pointers and wrong indices give an error on every function of programs") {
  const Handle<sluice_program> program = loadLayer({});
  sluice_program* made = nullptr;
  uint32_t index = 0;
  int64_t dims[4] = {};
  sluice_program_info info{};
  sluice_entry_info entry{};
  sluice_tensor_info tensor{};
  info.size = sizeof info;
  entry.size = sizeof entry;
  tensor.size = sizeof tensor;
  CHECK(sluice_program_load(nullptr, &made) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_load("x", nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_from_memory(nullptr, 4, &made) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_from_memory("x", 1, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_info(nullptr, &info) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_info(program.get(), nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_entry(nullptr, 0, &entry) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_entry(program.get(), 0, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_entry(program.get(), 2, &entry) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("entry 2 requested, but the program has 2"));
  CHECK(sluice_program_get_tensor(nullptr, 0, &tensor) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_tensor(program.get(), 0, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_get_tensor(program.get(), 1000, &tensor) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_find_tensor(nullptr, "x", &index) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_find_tensor(program.get(), nullptr, &index) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_find_tensor(program.get(), "x", nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_program_find_tensor(program.get(), "z", &index) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("'z'") && Contains("expert_ids"));
  CHECK(sluice_program_tensor_dims(nullptr, 0, 0, 1, 1, dims, 4) == SLUICE_ERROR_ARGUMENT);
  sluice_program_free(nullptr);
}

TEST_CASE("a structure of an older or newer caller is filled as far as both know it") {
  const Handle<sluice_program> program = loadLayer({});
  sluice_program_info info{};
  CHECK(sluice_program_get_info(program.get(), &info) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("sizeof"));
  struct Newer {
    sluice_program_info known;
    int64_t later;
  } newer{};
  newer.known.size = sizeof newer;
  newer.later = 7;
  REQUIRE(sluice_program_get_info(program.get(), &newer.known) == SLUICE_OK);
  CHECK(newer.later == 0);
  CHECK(newer.known.size == sizeof newer);

  Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  struct NewerOptions {
    sluice_workspace_options known;
    int64_t later;
  } options{};
  options.known.size = sizeof options;
  sluice_workspace* workspace = nullptr;
  REQUIRE(sluice_workspace_create(alone.get(), &options.known, &workspace) == SLUICE_OK);
  sluice_workspace_free(workspace);
  options.later = 1;
  CHECK(sluice_workspace_create(alone.get(), &options.known, &workspace) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("newer"));
  CHECK(workspace == nullptr);
}

TEST_CASE("a message belongs to the thread whose call failed") {
  CHECK(sluice_program_load("/nonexistent/a", nullptr) == SLUICE_ERROR_ARGUMENT);
  const std::string here = sluice_last_error();
  std::string before, after;
  std::thread([&] {
    before = sluice_last_error();
    sluice_program_get_info(nullptr, nullptr);
    after = sluice_last_error();
  }).join();
  CHECK(before.empty());
  CHECK(after == "program is null");
  CHECK(sluice_last_error() == here);
}

}  // namespace
}  // namespace sluice
