// How errors of Sluice become exceptions of Python: std::invalid_argument is a ValueError there and
// std::runtime_error a RuntimeError, with the message alone.
//
// Not TORCH_CHECK: its errors carry a C++ stack trace to where torch.ops is called.
#pragma once

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
T valueOf(Expected<T> expected) {
  if (!expected) throwRuntime(expected.error().message);
  return *std::move(expected);
}
inline void throwIfFailed(const Status& status) {
  if (!status) throwRuntime(status.error().message);
}

// The message of an exception in flight, without the prefix of the functions above.
std::string messageOfException();

// Runs `body`, which prepares a step. If it throws, `ranks` also refuse the step with that message, so that
// the others do not mistake this rank's next step for this one. `body` itself does nothing collective.
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
