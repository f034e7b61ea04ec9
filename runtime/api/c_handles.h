// The objects that the handles of sluice.h stand for, and how its functions report errors.
//
// A handle owns its object and shares what that object needs, so handles can be freed in any order. Members
// are destroyed from last to first, so members that others need are declared first. Internal to
// runtime/api/c_*.cc.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/api/sluice.h"
#include "runtime/base/child_process.h"

namespace sluice::capi {

// The status that a call returns, and its message.
struct Outcome {
  sluice_status status = SLUICE_OK;
  std::string message;
};

inline Outcome badArgument(std::string message) { return {SLUICE_ERROR_ARGUMENT, std::move(message)}; }
inline Outcome failed(const Error& error) { return {SLUICE_ERROR_FAILED, error.message}; }
// The outcome of a failed operation that ranks do together.
inline Outcome failedOn(const Transport& transport, const Error& error) {
  return {transport.isAborted() ? SLUICE_ERROR_ABORTED : SLUICE_ERROR_FAILED, error.message};
}

// Keeps the message for sluice_last_error() of this thread and, if `own` is given, for the handle. Returns
// the status. Throws nothing.
sluice_status report(Outcome&& outcome, std::string* own) noexcept;
// The outcome of the exception in flight.
sluice_status reportException(std::string* own) noexcept;

// Runs `body`, which returns an Outcome; no exception leaves this function.
template <class Body>
sluice_status guarded(std::string* own, const Body& body) noexcept {
  try {
    Outcome outcome = body();
    return outcome.status == SLUICE_OK ? SLUICE_OK : report(std::move(outcome), own);
  } catch (...) {
    return reportException(own);
  }
}

// Used inside guarded() for operations that other ranks wait for: an exception aborts the transport for them
// too.
template <class Body>
Outcome collectively(Transport& transport, const Body& body) {
  try {
    return body();
  } catch (...) {
    try {
      transport.abort(fmt::format("rank {}: out of memory, or a defect", transport.rank()));
    } catch (...) {
      // no memory for the abort either: the others notice it by their time limit
    }
    throw;
  }
}

// The size of the first version of a structure; every caller has at least that.
template <class T>
constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<sluice_workspace_options> = offsetof(sluice_workspace_options, device);
template <>
inline constexpr size_t kFirstSize<sluice_context_options> = offsetof(sluice_context_options, device);

template <class T>
Outcome checkSize(const T* given, const char* what) {
  if (!given) return badArgument(fmt::format("{} is null", what));
  if (given->size < kFirstSize<T>)
    return badArgument(fmt::format("{} has size {}, expected at least {}: set size to sizeof", what,
                                   given->size, kFirstSize<T>));
  return {};
}

// Returns the caller's structure with defaults for fields that the caller does not know. Fields that this
// library does not know must have their default.
template <class T>
Outcome readStructure(const T* given, const char* what, T& known) {
  if (Outcome outcome = checkSize(given, what); outcome.status != SLUICE_OK) return outcome;
  std::memcpy(&known, given, std::min(given->size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->size; ++i)
    if (bytes[i] != 0)
      return badArgument(fmt::format("{} requests a feature of a newer library: found {} bytes, expected {}",
                                     what, given->size, sizeof(T)));
  known.size = sizeof(T);
  return {};
}

// Copies those fields to the caller that it knows.
template <class T>
Outcome writeStructure(const T& known, const char* what, T* given) {
  if (Outcome outcome = checkSize(given, what); outcome.status != SLUICE_OK) return outcome;
  const size_t size = given->size;
  const size_t common = std::min(size, sizeof(T));
  std::memcpy(given, &known, common);
  std::memset(reinterpret_cast<unsigned char*>(given) + common, 0, size - common);
  given->size = size;
  return {};
}

// Deletes a handle. In a forked child it leaves handles of the parent alone.
template <class Handle>
void freeHandle(Handle* handle) noexcept {
  if (handle && !handle->origin.isForked()) delete handle;
}

// Checks that a handle belongs to this process.
inline Outcome checkOrigin(const Origin& origin, std::string_view what) {
  const Status here = origin.check(what);
  return here ? Outcome{} : failed(here.error());
}

// The device with this name at the only rank of the transport; null: CPU threads.
Outcome findDevice(const char* name, const Transport& transport, DeviceMaker& device);

// A submitted step, held by its handle and, until it ends, by its context.
struct SubmittedStep {
  std::shared_ptr<Transport> transport;
  PendingStep pending;
  std::atomic<bool> cancelled{false};
};

// A tensor of a program, as sluice_tensor_info describes it.
struct TensorFacts {
  BufferId buffer;
  std::vector<sluice_dim> dims;
  std::string shape;
  bool accumulates = false;
};
struct EntryFacts {
  std::vector<uint32_t> tensors;
  bool saves = false;
  bool usesSaved = false;
};

}  // namespace sluice::capi

struct sluice_program {
  sluice::Program program;
  std::vector<sluice::capi::TensorFacts> tensors;
  std::vector<sluice::capi::EntryFacts> entries;
};

struct sluice_transport {
  std::shared_ptr<sluice::Transport> transport;
  sluice::Origin origin;
};

struct sluice_workspace {
  std::shared_ptr<sluice::Transport> transport;
  std::shared_ptr<sluice::Workspace> workspace;
  sluice::Origin origin;
};

struct sluice_context {
  std::shared_ptr<sluice::Transport> transport;
  sluice::Program program;
  std::unique_ptr<sluice::Context> context;
  std::vector<std::shared_ptr<sluice::capi::SubmittedStep>> submitted;  // may still be running
  std::map<std::string, std::vector<int64_t>, std::less<>> outputDims;
  std::string error;
  sluice::Origin origin;

  // Whether a step of the context is still running: its results must not be read.
  bool isBusy() const;
};

namespace sluice::capi {

// Checks that `context` belongs to this process, that none of its steps is running, and that a run can be
// requested with these arguments.
Outcome checkContext(const sluice_context* context);
Outcome checkIdle(const sluice_context* context);
Outcome checkRun(const char* entry, uint32_t saved);

// Checks `context` and runs `body`, which other ranks wait for, with it.
template <class Body>
sluice_status guardedCollective(sluice_context* context, const Body& body) noexcept {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkContext(context); outcome.status != SLUICE_OK) return outcome;
    return collectively(*context->transport, body);
  });
}

}  // namespace sluice::capi

struct sluice_step {
  std::shared_ptr<sluice::capi::SubmittedStep> step;
  std::string error;
  sluice::Origin origin;
};
