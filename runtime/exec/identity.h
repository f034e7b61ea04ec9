// Identities: what each rank of a transport has loaded, before anything that follows from it.
//
// A board of a size that depends on no program, allocated first: ranks that loaded different programs find
// out what differs instead of reading each other's memory by another layout. Used by one thread of the rank
// at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"
#include "runtime/program/verify.h"

namespace sluice {

// Something to tell programs apart by: ("max_tokens", "512"), ("tensor x", "BF16 [T, 64]"). Ends in zeros.
struct Fact {
  std::array<char, 40> name{};
  std::array<char, 56> value{};
};

// A value type that travels as bytes; of a peer it may hold anything.
struct Identity {
  uint64_t fingerprint = 0;
  uint64_t count = 0;
  std::array<Fact, 48> facts;  // the first of them that fit
};

Identity identityOf(const VerifiedProgram& program);

// Example: rank 1 loaded program 'layer' with max_tokens 512, but rank 0 one with max_tokens 256
// Where all that can be shown is the same, the fingerprints; none where these are equal.
std::optional<std::string> difference(const Identity& other, int otherRank, const Identity& first,
                                      int firstRank);

class Identities {
 public:
  Identities() = default;

  // Collective, but waits for nobody: posts this rank's.
  static Expected<Identities> create(Transport& transport, const VerifiedProgram& program);

  // Compares those that have come. An error aborts the transport.
  Status compareThere() const;

  // The error with which this rank could not make its memory, or what is behind it: another program at
  // another rank. Aborts the transport.
  Error explain(const Error& error) const;

  // Waits for all, at the first call, and compares them. The same error at all ranks; it aborts.
  Status await(const std::string& entryName, double timeoutSeconds);

 private:
  std::optional<std::string> findDifference(bool& isComplete) const;

  Transport* transport_ = nullptr;
  AllGather boards_;
  bool known_ = false;  // all have come and are the same
};

}  // namespace sluice
