#include "ops/torch/errors.h"

#include <c10/util/Exception.h>

namespace sluice {

std::string messageOfException() {
  constexpr std::string_view kPrefix = "sluice: ";
  std::string message = "an exception without a message";
  try {
    throw;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
  }
  return message.starts_with(kPrefix) ? message.substr(kPrefix.size()) : message;
}

}  // namespace sluice
