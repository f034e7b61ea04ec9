// How errors of Sluice become Python exceptions: std::invalid_argument is a ValueError there and
// std::runtime_error a RuntimeError, with only the message.
//
// TORCH_CHECK is not used, because its errors carry a C++ stack trace to the caller of torch.ops.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/base/expected.h"

namespace sluice {

[[noreturn]] inline void throwValue(const std::string& message) {
  throw std::invalid_argument("sluice: " + message);
}
[[noreturn]] inline void throwRuntime(const std::string& message) {
  throw std::runtime_error("sluice: " + message);
}

template <class T>
T valueOrThrow(Expected<T> expected) {
  if (!expected) throwRuntime(expected.error().message);
  return *std::move(expected);
}
inline void throwIfFailed(const Status& status) {
  if (!status) throwRuntime(status.error().message);
}

// The message of the exception in flight, without the prefix that the functions above add.
std::string messageOfException();

// A RowMemory of a function that may throw.
template <class Make>
auto rowMemory(Make make) {
  return [make = std::move(make)](std::span<const int32_t> firstRows) -> Expected<void*> {
    try {
      return static_cast<void*>(make(firstRows));
    } catch (...) {
      return Error{messageOfException()};
    }
  };
}

// Runs `body`, which prepares a step and does nothing collective. If it throws, `ranks` also refuse the step
// with its message, so that the others do not mistake this rank's next step for this one.
template <class Refusing, class Body>
auto refusing(Refusing& ranks, const Body& body) {
  try {
    return body();
  } catch (...) {
    static_cast<void>(ranks.refuse(messageOfException()));
    throw;
  }
}

}  // namespace sluice
