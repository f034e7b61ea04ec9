// ForwardingTransport: passes everything to another transport, which must outlive it. Tests override the
// functions that they change.
#pragma once

#include "runtime/comm/transport.h"

namespace sluice {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& real) : real_(real) {}

  std::string_view kind() const override { return real_.kind(); }
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int localRanks() const override { return real_.localRanks(); }
  int localRank() const override { return real_.localRank(); }
  Expected<SymmetricHandle> allocate(size_t bytes) override { return real_.allocate(bytes); }
  std::byte* local(SymmetricHandle handle) override { return real_.local(handle); }
  std::byte* direct(int rank, SymmetricHandle handle) override { return real_.direct(rank, handle); }
  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override {
    real_.put(rank, handle, offset, data, bytes);
  }
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    real_.signal(rank, handle, offset, n);
  }
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override {
    real_.post(rank, handle, offset, value);
  }
  Doorbell& doorbell() override { return real_.doorbell(); }
  void abort(const std::string& message) override { real_.abort(message); }
  bool isAborted() const override { return real_.isAborted(); }
  std::string abortMessage() const override { return real_.abortMessage(); }
  int lostRank() const override { return real_.lostRank(); }
  bool hasLeft(int rank) const override { return real_.hasLeft(rank); }
  bool isStopped(int rank) const override { return real_.isStopped(rank); }
  CommStats stats() const override { return real_.stats(); }

 protected:
  Transport& real_;
};

}  // namespace sluice
