// Versions, statuses and messages of the C interface.
#include <exception>
#include <stdexcept>

#include "runtime/api/c_handles.h"

namespace sluice::capi {
namespace {

// The message of the last failed call. Allocates nothing when memory is exhausted.
struct LastError {
  std::string text;
  const char* fixed = nullptr;  // if set, replaces the text
};
thread_local LastError lastError;

constexpr const char* kOutOfMemory = "out of memory";

std::string textOrEmpty(const char* what) noexcept {
  try {
    return what;
  } catch (...) {
    return {};
  }
}

void keep(std::string* where, const std::string& message) noexcept {
  if (!where) return;
  try {
    *where = message;
  } catch (...) {
    where->clear();
  }
}

}  // namespace

sluice_status report(Outcome&& outcome, std::string* own) noexcept {
  keep(own, outcome.message);
  lastError.text = std::move(outcome.message);
  lastError.fixed = nullptr;
  return outcome.status;
}

sluice_status reportException(std::string* own) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    lastError.fixed = kOutOfMemory;
  } catch (const std::length_error&) {  // thrown by containers for sizes beyond all memory
    lastError.fixed = kOutOfMemory;
  } catch (const std::exception& exception) {
    return report({SLUICE_ERROR_INTERNAL, textOrEmpty(exception.what())}, own);
  } catch (...) {
    return report({SLUICE_ERROR_INTERNAL, textOrEmpty("an unknown exception")}, own);
  }
  if (own) own->assign(kOutOfMemory);  // a string this short is stored in the object
  return SLUICE_ERROR_MEMORY;
}

}  // namespace sluice::capi

uint32_t sluice_abi_version(void) { return SLUICE_ABI_VERSION; }

const char* sluice_status_name(sluice_status status) {
  switch (status) {
    case SLUICE_OK:
      return "ok";
    case SLUICE_ERROR_ARGUMENT:
      return "argument";
    case SLUICE_ERROR_FAILED:
      return "failed";
    case SLUICE_ERROR_ABORTED:
      return "aborted";
    case SLUICE_ERROR_MEMORY:
      return "memory";
    case SLUICE_ERROR_CANCELLED:
      return "cancelled";
    case SLUICE_ERROR_INTERNAL:
      return "internal";
    default:
      return "unknown";
  }
}

const char* sluice_last_error(void) {
  const auto& last = sluice::capi::lastError;
  return last.fixed ? last.fixed : last.text.c_str();
}
