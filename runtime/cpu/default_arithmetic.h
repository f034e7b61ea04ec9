// DefaultArithmetic: during its lifetime its thread rounds to nearest and keeps subnormal numbers, whatever
// the thread's owner has chosen. Tasks may run in threads of the caller, and give the same bits in all.
#pragma once

#include <cfenv>

namespace sluice {

class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace sluice
