// What every function of the C interface does in a forked child with the handles of its parent.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tests/runtime/api/c_layer.h"
#include "tests/testing/end_of_child.h"

namespace sluice {
namespace {

// What the parent made.
struct Handles {
  Handle<sluice_program> program = loadLayer({.ranks = 1});
  LayerData data = makeLayerData(buildMoeProgram({.ranks = 1}), {.tokens = {.counts = {30}}});
  Handle<sluice_transport> transport;
  Handle<sluice_workspace> workspace;
  Handle<sluice_context> context;
  Handle<sluice_step> step;

  explicit Handles(Handle<sluice_transport> of) : transport(std::move(of)) {
    sluice_workspace_options options{sizeof options, 2, SLUICE_PIN_NEVER};
    sluice_workspace* area = nullptr;
    REQUIRE(sluice_workspace_create(transport.get(), &options, &area) == SLUICE_OK);
    workspace.reset(area);
    context = contextOf(program, transport, area);
    REQUIRE(context);
    REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
    REQUIRE(sluice_context_run(context.get(), "forward", 0) == SLUICE_OK);
    sluice_step* submitted = nullptr;
    REQUIRE(sluice_context_submit(context.get(), "forward", 0, &submitted) == SLUICE_OK);
    step.reset(submitted);
  }
};

// 0: as sluice.h says.
using Call = std::function<int(Handles&)>;

int refused(sluice_status status) {
  if (status != SLUICE_ERROR_FAILED) return 10 + status;
  return std::strstr(sluice_last_error(), "of which this one was forked") ? 0 : 30;
}
int same(bool is) { return is ? 0 : 31; }

template <class T>
T sized() {
  T structure{};
  structure.size = sizeof structure;
  return structure;
}

// By the names of libsluice.map.
const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> all = {
      {"sluice_abi_version", [](Handles&) { return same(sluice_abi_version() == SLUICE_ABI_VERSION); }},
      {"sluice_status_name",
       [](Handles&) { return same(std::strcmp(sluice_status_name(SLUICE_ERROR_ABORTED), "aborted") == 0); }},
      {"sluice_last_error", [](Handles&) { return same(sluice_last_error() != nullptr); }},
      {"sluice_type_bytes", [](Handles&) { return same(sluice_type_bytes(SLUICE_BF16) == 2); }},
      // programs are values
      {"sluice_program_get_info",
       [](Handles& of) {
         auto info = sized<sluice_program_info>();
         return same(sluice_program_get_info(of.program.get(), &info) == SLUICE_OK && info.ranks == 1);
       }},
      {"sluice_program_get_entry",
       [](Handles& of) {
         auto info = sized<sluice_entry_info>();
         return same(sluice_program_get_entry(of.program.get(), 0, &info) == SLUICE_OK);
       }},
      {"sluice_program_get_tensor",
       [](Handles& of) {
         auto info = sized<sluice_tensor_info>();
         return same(sluice_program_get_tensor(of.program.get(), 0, &info) == SLUICE_OK);
       }},
      {"sluice_program_find_tensor",
       [](Handles& of) {
         uint32_t index = 0;
         return same(sluice_program_find_tensor(of.program.get(), "x", &index) == SLUICE_OK);
       }},
      {"sluice_program_tensor_dims",
       [](Handles& of) {
         int64_t dims[16];
         return same(sluice_program_tensor_dims(of.program.get(), 0, 0, 3, 5, dims, 16) == SLUICE_OK);
       }},
      {"sluice_program_from_memory", [](Handles&) { return same(loadLayer({.ranks = 1}) != nullptr); }},
      {"sluice_program_load",
       [](Handles&) {
         sluice_program* program = nullptr;
         return same(sluice_program_load("/no/such/file", &program) == SLUICE_ERROR_FAILED);
       }},
      {"sluice_program_free",
       [](Handles& of) {
         of.program.reset();
         return 0;
       }},
      // transports of its own
      {"sluice_transport_alone",
       [](Handles&) {
         sluice_transport* own = nullptr;
         const bool made = sluice_transport_alone(&own) == SLUICE_OK && !sluice_transport_is_aborted(own);
         sluice_transport_free(own);
         return same(made);
       }},
      {"sluice_transport_threads", [](Handles&) { return same(threadsOf(2)[1] != nullptr); }},
      {"sluice_transport_join",
       [](Handles&) {
#ifdef __SANITIZE_THREAD__
         return 0;  // it cannot start threads in the child of a process that has some
#endif
         const std::string name = "forked-" + std::to_string(std::random_device()());
         sluice_job job{sizeof job, name.c_str(), 0, 1, 20};
         sluice_transport* own = nullptr;
         const bool made =
             sluice_transport_join(&job, &own) == SLUICE_OK && !sluice_transport_is_aborted(own);
         sluice_transport_free(own);
         return same(made);
       }},
      // the parent's
      {"sluice_transport_rank",
       [](Handles& of) { return same(sluice_transport_rank(of.transport.get()) == 0); }},
      {"sluice_transport_size",
       [](Handles& of) { return same(sluice_transport_size(of.transport.get()) == 1); }},
      {"sluice_transport_is_aborted",
       [](Handles& of) { return same(sluice_transport_is_aborted(of.transport.get()) == 1); }},
      {"sluice_transport_abort",
       [](Handles& of) { return refused(sluice_transport_abort(of.transport.get(), "no")); }},
      {"sluice_transport_free",
       [](Handles& of) {
         of.transport.reset();
         return 0;
       }},
      {"sluice_workspace_create",
       [](Handles& of) {
         sluice_workspace* made = nullptr;
         return refused(sluice_workspace_create(of.transport.get(), nullptr, &made));
       }},
      {"sluice_workspace_get_info",
       [](Handles& of) {
         auto info = sized<sluice_workspace_info>();
         return refused(sluice_workspace_get_info(of.workspace.get(), &info));
       }},
      {"sluice_workspace_free",
       [](Handles& of) {
         of.workspace.reset();
         return 0;
       }},
      {"sluice_context_create",
       [](Handles& of) {
         sluice_context* made = nullptr;
         return refused(sluice_context_create(of.program.get(), of.transport.get(), nullptr, &made));
       }},
      {"sluice_context_error",
       [](Handles& of) { return same(std::strcmp(sluice_context_error(of.context.get()), "") == 0); }},
      {"sluice_context_bind",
       [](Handles& of) {
         const sluice_tensor view = tensorOf(of.data.inputs[0].at("x"));
         return refused(sluice_context_bind(of.context.get(), "x", &view));
       }},
      {"sluice_context_bind_rows",
       [](Handles& of) {
         return refused(sluice_context_bind_rows(of.context.get(), "act", nullptr, nullptr));
       }},
      {"sluice_context_run",
       [](Handles& of) { return refused(sluice_context_run(of.context.get(), "forward", 0)); }},
      {"sluice_context_refuse",
       [](Handles& of) { return refused(sluice_context_refuse(of.context.get(), 0, "no")); }},
      {"sluice_context_set_stream",
       [](Handles& of) { return refused(sluice_context_set_stream(of.context.get(), nullptr)); }},
      {"sluice_context_submit",
       [](Handles& of) {
         sluice_step* step = nullptr;
         return refused(sluice_context_submit(of.context.get(), "forward", 0, &step));
       }},
      {"sluice_context_output",
       [](Handles& of) {
         auto tensor = sized<sluice_tensor>();
         return refused(sluice_context_output(of.context.get(), "y", &tensor));
       }},
      {"sluice_context_expert_rows",
       [](Handles& of) {
         int32_t count = 0;
         return refused(sluice_context_expert_rows(of.context.get(), nullptr, 0, &count));
       }},
      {"sluice_context_get_stats",
       [](Handles& of) {
         auto stats = sized<sluice_stats>();
         return refused(sluice_context_get_stats(of.context.get(), &stats));
       }},
      {"sluice_context_trace_start",
       [](Handles& of) { return refused(sluice_context_trace_start(of.context.get(), 0)); }},
      {"sluice_context_trace_stop",
       [](Handles& of) { return refused(sluice_context_trace_stop(of.context.get())); }},
      {"sluice_trace_write",
       [](Handles& of) {
         sluice_context* const contexts[] = {of.context.get()};
         return refused(sluice_trace_write(contexts, 1, "/no/such/folder/trace.json"));
       }},
      {"sluice_context_free",
       [](Handles& of) {
         of.context.reset();
         return 0;
       }},
      {"sluice_step_wait", [](Handles& of) { return refused(sluice_step_wait(of.step.get())); }},
      {"sluice_step_poll",
       [](Handles& of) {
         int32_t done = 0;
         return refused(sluice_step_poll(of.step.get(), &done));
       }},
      {"sluice_step_cancel", [](Handles& of) { return refused(sluice_step_cancel(of.step.get())); }},
      {"sluice_step_error",
       [](Handles& of) { return same(std::strcmp(sluice_step_error(of.step.get()), "") == 0); }},
      {"sluice_step_free",
       [](Handles& of) {
         of.step.reset();
         return 0;
       }},
  };
  return all;
}

// Names that the library exports.
std::set<std::string> exported() {
  std::ifstream file("runtime/api/libsluice.map");
  std::set<std::string> names;
  for (std::string word; file >> word;)
    if (word.starts_with("sluice_")) names.insert(word.substr(0, word.find(';')));
  return names;
}

Handle<sluice_transport> joined() {
  const std::string name = "c-fork-" + std::to_string(std::random_device()());
  sluice_job job{sizeof job, name.c_str(), 0, 1, 20};
  sluice_transport* transport = nullptr;
  sluice_transport_join(&job, &transport);
  return Handle<sluice_transport>(transport);
}

TEST_CASE("every function of the C interface keeps its promise in a forked child, and harms no parent") {
  std::set<std::string> known;
  for (const auto& [name, call] : calls()) known.insert(name);
  CHECK(known == exported());
  for (const bool overSharedMemory : {false, true}) {
    Handles handles(overSharedMemory ? joined() : std::move(threadsOf(1)[0]));
    for (const auto& [name, call] : calls()) {
      INFO(name << (overSharedMemory ? " over shared memory" : " of threads"));
      CHECK(endOfChild([&] { return call(handles); }) == 0);
    }
    CHECK(sluice_step_wait(handles.step.get()) == SLUICE_OK);
    CHECK(sluice_context_run(handles.context.get(), "forward", 0) == SLUICE_OK);
    CHECK(sluice_transport_is_aborted(handles.transport.get()) == 0);
  }
}

}  // namespace
}  // namespace sluice
