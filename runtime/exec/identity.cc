#include "runtime/exec/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

constexpr std::string_view kLayout = "2";  // of the messages that ranks exchange at the start of a step
constexpr size_t kMaxShown = 3;
constexpr int64_t kPatience = 500'000'000;  // ns for a peer that may explain an error

template <size_t N>
void write(std::array<char, N>& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

// Bytes of a peer may lack the end, or be no text at all.
template <size_t N>
std::string read(const std::array<char, N>& from) {
  std::string text(from.data(), strnlen(from.data(), N));
  std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return text;
}

class Facts {
 public:
  explicit Facts(Identity& identity) : identity_(identity) {}
  void add(std::string_view name, std::string_view value) {
    if (identity_.count == identity_.facts.size()) return;
    Fact& fact = identity_.facts[identity_.count++];
    write(fact.name, name);
    write(fact.value, value);
  }
  void add(std::string_view name, int64_t value) { add(name, std::to_string(value)); }

 private:
  Identity& identity_;
};

std::string shapeOf(const Buffer& buffer) {
  std::string shape;
  for (const Dim& dim : buffer.shape)
    shape += (shape.empty() ? "" : ", ") +
             (dim.extent == Extent::kFixed ? std::to_string(dim.size) : text::word(dim.extent));
  return fmt::format("{} [{}]", text::word(buffer.type), shape);
}

size_t countFacts(const Identity& identity) {
  return static_cast<size_t>(std::min<uint64_t>(identity.count, identity.facts.size()));
}

const Fact* find(const Identity& identity, const std::string& name) {
  for (size_t i = 0; i < countFacts(identity); ++i)
    if (read(identity.facts[i].name) == name) return &identity.facts[i];
  return nullptr;
}

std::string programName(const Identity& identity) {
  const Fact* name = find(identity, "program");
  return name ? read(name->value) : "";
}

}  // namespace

Identity makeIdentity(const VerifiedProgram& verified) {
  const TaskProgram& program = *verified;
  Identity identity;
  identity.fingerprint = verified.fingerprint();
  Facts facts(identity);
  facts.add("program", program.name);
  facts.add("layout", kLayout);
  facts.add("ranks", program.mesh.peers());
  facts.add("tp", program.mesh.tp);
  facts.add("experts", program.experts);
  facts.add("top_k", program.topK);
  facts.add("max_tokens", program.maxTokens);
  for (const Symbol& symbol : program.symbols) facts.add(symbol.name, symbol.value);
  facts.add("target", program.target);
  facts.add("cores", program.cores + program.cubeCores + program.vectorCores);
  facts.add("entries", static_cast<int64_t>(program.entries.size()));
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kInput || buffer.role == Role::kOutput)
      facts.add("tensor " + buffer.name, shapeOf(buffer));
  return identity;
}

std::optional<std::string> difference(const Identity& other, int otherRank, const Identity& first,
                                      int firstRank) {
  if (other.fingerprint == first.fingerprint) return std::nullopt;
  std::string otherFacts, firstFacts;
  size_t shown = 0;
  for (size_t i = 0; i < countFacts(other) && shown < kMaxShown; ++i) {
    const std::string name = read(other.facts[i].name), value = read(other.facts[i].value);
    const Fact* same = find(first, name);
    if (name == "program" || !same || read(same->value) == value) continue;
    const std::string_view join = shown++ == 0 ? " with " : ", ";
    otherFacts += fmt::format("{}{} {}", join, name, value);
    firstFacts += fmt::format("{}{} {}", join, name, read(same->value));
  }
  const std::string otherName = programName(other), firstName = programName(first);
  if (shown == 0 && otherName == firstName) {
    otherFacts = fmt::format(" with fingerprint {:016x}", other.fingerprint);
    firstFacts = fmt::format(" with fingerprint {:016x}", first.fingerprint);
  }
  return fmt::format("rank {} loaded program '{}'{}, but rank {} {}{}", otherRank, otherName, otherFacts,
                     firstRank, otherName == firstName ? "one" : fmt::format("program '{}'", firstName),
                     firstFacts);
}

Expected<Identities> Identities::create(Transport& transport, const VerifiedProgram& program) {
  Identities identities;
  identities.transport_ = &transport;
  const Identity own = makeIdentity(program);
  auto boards = AllGather::create(transport, sizeof(own));
  if (!boards) {
    transport.abort(
        fmt::format("rank {}: no memory to tell the other ranks of program '{}': {}; ranks must load the "
                    "same programs in the same order",
                    transport.rank(), program->name, boards.error().message));
    return Error{transport.abortMessage()};
  }
  identities.boards_ = std::move(*boards);
  identities.boards_.post(std::as_bytes(std::span(&own, 1)));
  return identities;
}

// Against the lowest rank that has come.
std::optional<std::string> Identities::findDifference(bool& isComplete) const {
  Identity first, other;
  int firstRank = -1;
  isComplete = true;
  for (int rank = 0; rank < transport_->size(); ++rank) {
    if (!boards_.isThere(rank)) {
      isComplete = false;
      continue;
    }
    std::memcpy(&other, boards_.of(rank), sizeof(other));
    if (firstRank < 0) {
      first = other;
      firstRank = rank;
    }
    if (auto found = difference(other, rank, first, firstRank)) return found;
  }
  return std::nullopt;
}

Status Identities::compareThere() const {
  bool isComplete = false;
  const auto found = findDifference(isComplete);
  if (!found) return {};
  transport_->abort(*found);
  return Error{transport_->abortMessage()};
}

Error Identities::explain(const Error& error) const {
  const int64_t deadline = monotonicNanoseconds() + kPatience;
  const Attention attention(transport_->doorbell());
  while (true) {
    const uint32_t epoch = transport_->doorbell().epoch();
    bool isComplete = false;
    const auto found = findDifference(isComplete);
    const int64_t open = deadline - monotonicNanoseconds();
    if (found || isComplete || open <= 0 || transport_->isAborted()) {
      transport_->abort(found ? *found : fmt::format("rank {}: {}", transport_->rank(), error.message));
      return Error{transport_->abortMessage()};
    }
    transport_->doorbell().park(epoch, open);
  }
}

Status Identities::await(const std::string& entryName, double timeoutSeconds) {
  if (known_) return {};
  const std::string when = fmt::format("before entry '{}'", entryName);
  if (Status all = boards_.await({"the program", when}, timeoutSeconds); !all) return all;
  if (Status same = compareThere(); !same) return same;
  known_ = true;
  return {};
}

}  // namespace sluice
