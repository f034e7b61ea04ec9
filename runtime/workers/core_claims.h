// CoreClaims: the processing units that this process has taken for its workers, so that jobs of one machine
// take different ones.
//
// A claim is a socket with a name of Linux's abstract name space: it lies in no folder, and ends with its
// process however that ends. Containers with networks of their own do not see each other's.
//
// Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>

namespace sluice {

class CoreClaims {
 public:
  // Of all processes of this machine.
  static CoreClaims& ofMachine();

  // Claims of other names have nothing to do with these.
  explicit CoreClaims(std::string name) : name_(std::move(name)) {}
  ~CoreClaims();
  CoreClaims(const CoreClaims&) = delete;
  CoreClaims& operator=(const CoreClaims&) = delete;

  // That one of the units which this process uses least, the first of such, but for those that other
  // processes have taken; -1 if they have all.
  int take(std::span<const int> units);
  // What take() gave, once for each time.
  void giveBack(int unit);

 private:
  struct Claim {
    int socket = -1;
    int users = 0;
  };

  // Whether this process has it now.
  bool claim(int unit);

  const std::string name_;
  std::mutex mutex_;
  std::map<int, Claim> claims_;  // by unit
};

}  // namespace sluice
