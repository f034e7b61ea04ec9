// A transport that loses or delays signals, for tests of bounded waits. Everything else goes to the real one.
#pragma once

#include <functional>

#include "runtime/comm/transport.h"

namespace sluice {

class FaultyTransport final : public Transport {
 public:
  // Called before each signal; false drops it.
  using Filter = std::function<bool(int rank, SymmetricHandle handle, size_t offset, uint64_t n)>;

  FaultyTransport(Transport& real, Filter keep) : real_(real), keep_(std::move(keep)) {}

  // The receiver's memory is out of reach of stores: every piece goes through put.
  void hideMemory() { hidden_ = true; }

  std::string_view kind() const override { return real_.kind(); }
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  Expected<SymmetricHandle> allocate(size_t bytes) override { return real_.allocate(bytes); }
  std::byte* local(SymmetricHandle handle) override { return real_.local(handle); }
  std::byte* direct(int rank, SymmetricHandle handle) override {
    return hidden_ ? nullptr : real_.direct(rank, handle);
  }
  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override {
    real_.put(rank, handle, offset, data, bytes);
  }
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    if (keep_(rank, handle, offset, n)) real_.signal(rank, handle, offset, n);
  }
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override {
    real_.post(rank, handle, offset, value);
  }
  Doorbell& doorbell() override { return real_.doorbell(); }
  void abort(const std::string& message) override { real_.abort(message); }
  bool isAborted() const override { return real_.isAborted(); }
  std::string abortMessage() const override { return real_.abortMessage(); }

 private:
  Transport& real_;
  Filter keep_;
  bool hidden_ = false;
};

}  // namespace sluice
