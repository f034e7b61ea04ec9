// Identities: what each rank of a transport has loaded, compared before it is used.
//
// A board whose size depends on no program, allocated first: ranks that loaded different programs report the
// difference instead of reading each other's memory with another layout. Used by one thread of the rank at a
// time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"
#include "runtime/program/verify.h"

namespace sluice {

// A fact that distinguishes programs: ("max_tokens", "512"), ("tensor x", "BF16 [T, 64]"). Ends in zeros.
struct Fact {
  std::array<char, 40> name{};
  std::array<char, 56> value{};
};

// A value type that travels as bytes; that of a peer may have any content.
struct Identity {
  uint64_t fingerprint = 0;
  uint64_t count = 0;
  std::array<Fact, 48> facts;  // the first of them that fit
};

Identity identityOf(const VerifiedProgram& program);

// Example: rank 1 loaded program 'layer' with max_tokens 512, but rank 0 one with max_tokens 256 If all facts
// are equal, the fingerprints; nothing if these are equal, too.
std::optional<std::string> difference(const Identity& other, int otherRank, const Identity& first,
                                      int firstRank);

class Identities {
 public:
  Identities() = default;

  // Collective, but does not wait: posts this rank's identity.
  static Expected<Identities> create(Transport& transport, const VerifiedProgram& program);

  // Compares the identities that have arrived. An error aborts the transport.
  Status compareThere() const;

  // `error`, with which this rank could not make its memory, or its cause: another program at another rank.
  // Aborts the transport.
  Error explain(const Error& error) const;

  // Waits for all, at the first call, and compares them. The same error at all ranks; it aborts.
  Status await(const std::string& entryName, double timeoutSeconds);

 private:
  std::optional<std::string> findDifference(bool& isComplete) const;

  Transport* transport_ = nullptr;
  AllGather boards_;
  bool known_ = false;  // all have arrived and are equal
};

}  // namespace sluice
