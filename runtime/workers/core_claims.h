// CoreClaims: the processing units that this process has claimed for its workers, so that jobs on one machine
// use different ones.
// A claim is a socket with a name in Linux's abstract name space: it is in no folder, and ends with its
// process however that ends. Containers with separate networks do not see each other's claims.
//
// Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>

#include "runtime/base/file_descriptor.h"

namespace sluice {

class CoreClaims {
 public:
  // The claims shared by all processes of this machine.
  static CoreClaims& ofMachine();

  // Claims under other names are independent of these.
  explicit CoreClaims(std::string name) : name_(std::move(name)) {}
  CoreClaims(const CoreClaims&) = delete;
  CoreClaims& operator=(const CoreClaims&) = delete;

  // Claims the unit that this process uses least (the first of several), except those that other processes
  // have claimed. Returns -1 if they have claimed all.
  int take(std::span<const int> units);
  // Releases a unit that take() returned; called once per take().
  void release(int unit);

 private:
  struct Claim {
    FileDescriptor socket;
    int users = 0;
  };

  // Returns whether this process now has the unit.
  bool claim(int unit);

  const std::string name_;
  std::mutex mutex_;
  std::map<int, Claim> claims_;  // by unit
};

}  // namespace sluice
