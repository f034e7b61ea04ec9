// A layer through the C interface, for its tests: handles that free themselves, and tensors bound to them.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/sluice.h"
#include "runtime/program/codec.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {

struct FreeHandle {
  void operator()(sluice_program* handle) const { sluice_program_free(handle); }
  void operator()(sluice_transport* handle) const { sluice_transport_free(handle); }
  void operator()(sluice_workspace* handle) const { sluice_workspace_free(handle); }
  void operator()(sluice_context* handle) const { sluice_context_free(handle); }
  void operator()(sluice_step* handle) const { sluice_step_free(handle); }
};
template <class T>
using Handle = std::unique_ptr<T, FreeHandle>;

inline Handle<sluice_program> loadBytes(const std::vector<std::byte>& bytes) {
  sluice_program* program = nullptr;
  sluice_program_from_memory(bytes.data(), bytes.size(), &program);
  return Handle<sluice_program>(program);
}
inline Handle<sluice_program> loadLayer(const MoeShape& shape) {
  return loadBytes(encode(buildMoeProgram(shape)));
}

inline std::vector<Handle<sluice_transport>> threadsOf(int ranks) {
  std::vector<sluice_transport*> made(ranks);
  sluice_transport_threads(ranks, made.data());
  return {made.begin(), made.end()};
}

inline Handle<sluice_context> contextOf(const Handle<sluice_program>& program,
                                        const Handle<sluice_transport>& transport,
                                        sluice_workspace* workspace = nullptr, int threads = 2) {
  sluice_context_options options{};
  options.size = sizeof options;
  options.threads = threads;
  options.timeout_seconds = 20;
  options.workspace = workspace;
  sluice_context* context = nullptr;
  sluice_context_create(program.get(), transport.get(), &options, &context);
  return Handle<sluice_context>(context);
}

inline sluice_tensor tensorOf(tools::Tensor& tensor) {
  sluice_tensor view{};
  view.size = sizeof view;
  view.type = static_cast<sluice_type>(tensor.type());
  view.dim_count = static_cast<int32_t>(tensor.shape().size());
  view.dims = tensor.shape().data();
  view.data = tensor.data();
  return view;
}

// The first status that is not SLUICE_OK.
inline sluice_status bindLayer(sluice_context* context, LayerData& data, int rank) {
  for (auto* tensors : {&data.inputs[rank], &data.outputs[rank]})
    for (auto& [name, tensor] : *tensors) {
      const sluice_tensor view = tensorOf(tensor);
      if (sluice_status status = sluice_context_bind(context, name.c_str(), &view)) return status;
    }
  return SLUICE_OK;
}

inline void clearOutputs(LayerData& data) {
  for (auto& outputs : data.outputs)
    for (auto& [name, tensor] : outputs) std::fill_n(tensor.data(), tensor.bytes(), std::byte{0xa5});
}

// Against double precision.
inline void checkOutputs(const LayerData& data) {
  for (const tools::OutputError& error : errorsOf(data)) {
    INFO(error.name);
    CHECK(error.relative <= 1.2e-2);
  }
}

// A folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice.XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice
