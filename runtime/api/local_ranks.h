// LocalRanks: ranks that are threads of one process.
#pragma once

#include <memory>

#include "runtime/comm/transport.h"

namespace sluice {

// The transports of `size` ranks that are threads of this process. Outlives its contexts.
class LocalRanks {
 public:
  explicit LocalRanks(int size);
  ~LocalRanks();
  Transport& transport(int rank);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
