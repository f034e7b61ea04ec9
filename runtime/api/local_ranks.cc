#include "runtime/api/local_ranks.h"

#include "runtime/comm/in_process.h"
#include "runtime/workers/cores.h"

namespace sluice {

struct LocalRanks::Impl {
  explicit Impl(int size) : group(size) {}
  InProcessGroup group;
};

LocalRanks::LocalRanks(int size) : impl_(std::make_unique<Impl>(size)) { readMachine(); }
LocalRanks::~LocalRanks() = default;
Transport& LocalRanks::transport(int rank) { return impl_->group.transport(rank); }

}  // namespace sluice
