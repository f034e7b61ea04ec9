// SPDX-License-Identifier: Apache-2.0
// The C++ interface of Sluice: the objects of sluice.h as values that free themselves, and errors as
// exceptions.
//
//   auto program = sluice::Program::load("layer.slp");
//   auto transport = sluice::Transport::alone();
//   sluice::Context context(program, transport);
//   context.bind("x", {SLUICE_BF16, {tokens, hidden}, x});   // ... and so on for every tensor
//   context.run("forward");
//
// C++17, header only: it calls the C interface, so that a program runs with every later library of the same
// major version. sluice.h describes what each function does, its threads and its errors. Objects are moved,
// not copied, and may be destroyed in any order. A failed call throws Error with the message of the library;
// destructors throw nothing. A moved-from object may only be assigned to or destroyed.
#ifndef SLUICE_RUNTIME_API_SLUICE_HPP
#define SLUICE_RUNTIME_API_SLUICE_HPP

#include <sluice.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice {

class Error : public std::runtime_error {
 public:
  Error(sluice_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  sluice_status status() const { return status_; }

 private:
  sluice_status status_;
};

namespace detail {

inline void check(sluice_status status) {
  if (status != SLUICE_OK) throw Error(status, sluice_last_error());
}

template <auto Function>
struct Free {
  template <class T>
  void operator()(T* handle) const {
    Function(handle);
  }
};
template <class T, auto Function>
using Handle = std::unique_ptr<T, Free<Function>>;

template <class T>
T sized() {
  T value{};
  value.size = sizeof value;
  return value;
}

}  // namespace detail

// A contiguous row-major tensor in the caller's memory.
struct Tensor {
  sluice_type type = SLUICE_F32;
  std::vector<int64_t> dims;
  void* data = nullptr;
  bool constant = false;  // SLUICE_CONSTANT

  int64_t elements() const {
    int64_t product = 1;
    for (int64_t dim : dims) product *= dim;
    return product;
  }
  int64_t bytes() const { return elements() * sluice_type_bytes(type); }
};

class Program {
 public:
  static Program load(const std::string& path) {
    sluice_program* program = nullptr;
    detail::check(sluice_program_load(path.c_str(), &program));
    return Program(program);
  }
  static Program fromMemory(const void* bytes, size_t size) {
    sluice_program* program = nullptr;
    detail::check(sluice_program_from_memory(bytes, size, &program));
    return Program(program);
  }

  // Strings and arrays in what the next three return live as long as the program.
  sluice_program_info info() const {
    auto info = detail::sized<sluice_program_info>();
    detail::check(sluice_program_get_info(get(), &info));
    return info;
  }
  std::vector<sluice_entry_info> entries() const {
    std::vector<sluice_entry_info> all(info().entry_count, detail::sized<sluice_entry_info>());
    for (uint32_t i = 0; i < all.size(); ++i) detail::check(sluice_program_get_entry(get(), i, &all[i]));
    return all;
  }
  std::vector<sluice_tensor_info> tensors() const {
    std::vector<sluice_tensor_info> all(info().tensor_count, detail::sized<sluice_tensor_info>());
    for (uint32_t i = 0; i < all.size(); ++i) detail::check(sluice_program_get_tensor(get(), i, &all[i]));
    return all;
  }
  // The number of the tensor with this name, as in tensors().
  uint32_t find(const std::string& name) const {
    uint32_t index = 0;
    detail::check(sluice_program_find_tensor(get(), name.c_str(), &index));
    return index;
  }
  // The dimensions of tensor `index` at `rank`, with these numbers of tokens and rows.
  std::vector<int64_t> dims(uint32_t index, int32_t rank, int64_t tokens, int64_t rows = 0) const {
    auto info = detail::sized<sluice_tensor_info>();
    detail::check(sluice_program_get_tensor(get(), index, &info));
    std::vector<int64_t> dims(static_cast<size_t>(info.dim_count));
    detail::check(sluice_program_tensor_dims(get(), index, rank, tokens, rows, dims.data(), info.dim_count));
    return dims;
  }

  sluice_program* get() const { return handle_.get(); }

 private:
  explicit Program(sluice_program* handle) : handle_(handle) {}
  detail::Handle<sluice_program, sluice_program_free> handle_;
};

class Transport {
 public:
  static Transport alone() {
    sluice_transport* transport = nullptr;
    detail::check(sluice_transport_alone(&transport));
    return Transport(transport);
  }
  // Those of all ranks, which are threads of this process.
  static std::vector<Transport> threads(int32_t ranks) {
    std::vector<sluice_transport*> handles(ranks > 0 ? static_cast<size_t>(ranks) : 0);
    detail::check(sluice_transport_threads(ranks, handles.data()));
    std::vector<Transport> transports;
    transports.reserve(handles.size());
    for (sluice_transport* handle : handles) transports.push_back(Transport(handle));
    return transports;
  }
  // Ranks that are processes of this machine; waits until all have joined. 0 seconds: 30.
  static Transport join(const std::string& name, int32_t rank, int32_t ranks, double timeoutSeconds = 0) {
    auto job = detail::sized<sluice_job>();
    job.name = name.c_str();
    job.rank = rank;
    job.ranks = ranks;
    job.timeout_seconds = timeoutSeconds;
    sluice_transport* transport = nullptr;
    detail::check(sluice_transport_join(&job, &transport));
    return Transport(transport);
  }

  int32_t rank() const { return sluice_transport_rank(get()); }
  int32_t size() const { return sluice_transport_size(get()); }
  void abort(const std::string& message) { detail::check(sluice_transport_abort(get(), message.c_str())); }
  bool isAborted() const { return sluice_transport_is_aborted(get()) != 0; }

  sluice_transport* get() const { return handle_.get(); }

 private:
  explicit Transport(sluice_transport* handle) : handle_(handle) {}
  detail::Handle<sluice_transport, sluice_transport_free> handle_;
};

class Workspace {
 public:
  // 0 threads: this rank's share of the cores.
  explicit Workspace(const Transport& transport, int32_t threads = 0,
                     sluice_pinning pinning = SLUICE_PIN_IF_ENOUGH) {
    auto options = detail::sized<sluice_workspace_options>();
    options.threads = threads;
    options.pinning = pinning;
    sluice_workspace* workspace = nullptr;
    detail::check(sluice_workspace_create(transport.get(), &options, &workspace));
    handle_.reset(workspace);
  }
  sluice_workspace_info info() const {
    auto info = detail::sized<sluice_workspace_info>();
    detail::check(sluice_workspace_get_info(get(), &info));
    return info;
  }

  sluice_workspace* get() const { return handle_.get(); }

 private:
  detail::Handle<sluice_workspace, sluice_workspace_free> handle_;
};

// A run that was submitted. Its destructor waits for its end.
class Step {
 public:
  void wait() { detail::check(sluice_step_wait(handle_.get())); }
  bool isDone() {
    int32_t done = 0;
    detail::check(sluice_step_poll(handle_.get(), &done));
    return done != 0;
  }
  void cancel() { detail::check(sluice_step_cancel(handle_.get())); }

 private:
  friend class Context;
  explicit Step(sluice_step* handle) : handle_(handle) {}
  detail::Handle<sluice_step, sluice_step_free> handle_;
};

// The fields of sluice_context_options, all 0 at first: the defaults.
struct ContextOptions : sluice_context_options {
  ContextOptions() : sluice_context_options(detail::sized<sluice_context_options>()) {}
};

class Context {
 public:
  // Collective.
  Context(const Program& program, const Transport& transport, const ContextOptions& options = {})
      : experts_(program.info().experts) {
    sluice_context* context = nullptr;
    detail::check(sluice_context_create(program.get(), transport.get(), &options, &context));
    handle_.reset(context);
  }

  void bind(const std::string& name, const Tensor& tensor) {
    auto given = detail::sized<sluice_tensor>();
    given.type = tensor.type;
    given.dim_count = static_cast<int32_t>(tensor.dims.size());
    given.dims = tensor.dims.data();
    given.data = tensor.data;
    given.flags = tensor.constant ? SLUICE_CONSTANT : 0;
    detail::check(sluice_context_bind(get(), name.c_str(), &given));
  }
  // As sluice_context_bind_rows(); memory(rows) must not throw. An empty function: the context's memory
  // again.
  void bindRows(const std::string& name, std::function<void*(int64_t)> memory) {
    if (!memory) return detail::check(sluice_context_bind_rows(get(), name.c_str(), nullptr, nullptr));
    const auto call = [](void* user, int64_t rows) {
      return (*static_cast<std::function<void*(int64_t)>*>(user))(rows);
    };
    auto kept = std::make_unique<std::function<void*(int64_t)>>(std::move(memory));
    detail::check(sluice_context_bind_rows(get(), name.c_str(), call, kept.get()));
    rows_[name] = std::move(kept);
  }
  // As sluice_context_set_stream().
  void setStream(void* stream) { detail::check(sluice_context_set_stream(get(), stream)); }
  void run(const std::string& entry, uint32_t saved = SLUICE_SAVED_DEFAULT) {
    detail::check(sluice_context_run(get(), entry.c_str(), saved));
  }
  Step submit(const std::string& entry, uint32_t saved = SLUICE_SAVED_DEFAULT) {
    sluice_step* step = nullptr;
    detail::check(sluice_context_submit(get(), entry.c_str(), saved, &step));
    return Step(step);
  }
  void refuse(const std::string& message, uint32_t saved = SLUICE_SAVED_DEFAULT) {
    detail::check(sluice_context_refuse(get(), saved, message.c_str()));
  }

  // A rows output of the last run, in the context's memory; valid until the next step of the workspace.
  Tensor output(const std::string& name) {
    auto found = detail::sized<sluice_tensor>();
    detail::check(sluice_context_output(get(), name.c_str(), &found));
    return {found.type, {found.dims, found.dims + found.dim_count}, found.data, false};
  }
  // The rows of each expert of this rank in the last run.
  std::vector<int32_t> expertRows() {
    std::vector<int32_t> rows(static_cast<size_t>(experts_));
    int32_t count = 0;
    detail::check(sluice_context_expert_rows(get(), rows.data(), experts_, &count));
    rows.resize(static_cast<size_t>(count));
    return rows;
  }
  sluice_stats stats() {
    auto stats = detail::sized<sluice_stats>();
    detail::check(sluice_context_get_stats(get(), &stats));
    return stats;
  }

  // 0 spans: 2^20 per worker.
  void startTrace(uint64_t spansPerWorker = 0) {
    detail::check(sluice_context_trace_start(get(), spansPerWorker));
  }
  void stopTrace() { detail::check(sluice_context_trace_stop(get())); }

  sluice_context* get() const { return handle_.get(); }

 private:
  int32_t experts_;                                                             // of all ranks
  std::map<std::string, std::unique_ptr<std::function<void*(int64_t)>>> rows_;  // must outlive the handle
  detail::Handle<sluice_context, sluice_context_free> handle_;
};

// One file for ui.perfetto.dev, of contexts of one program.
inline void writeTrace(const std::vector<Context*>& contexts, const std::string& path) {
  std::vector<sluice_context*> handles;
  handles.reserve(contexts.size());
  for (const Context* context : contexts) handles.push_back(context->get());
  detail::check(sluice_trace_write(handles.data(), handles.size(), path.c_str()));
}

}  // namespace sluice

#endif  // SLUICE_RUNTIME_API_SLUICE_HPP
