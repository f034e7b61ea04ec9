#include "tests/fuzz/compile_checks.h"

#include <fmt/format.h>

#include <string>

#include "compiler/api/compile.h"
#include "runtime/program/codec.h"

namespace sluice::fuzz {
namespace {

// FNV-1a.
uint64_t hashContent(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

Target targetOf(uint64_t bits) {
  Target target;
  target.name = "fuzz";
  if (bits % 4 == 0) {
    target.cubeCores = 2;
    target.vectorCores = 3;
    target.communicationCores = static_cast<int32_t>(bits / 4 % 2);
  }
  return target;
}

CompileOptions optionsOf(uint64_t bits) {
  CompileOptions options;
  if (bits % 2 == 0) options.trainable = std::vector<std::string>{"all"};
  if (options.trainable && bits / 2 % 2 == 0) options.keep = "minimal";
  if (options.trainable && bits / 4 % 2 == 0) options.grads = "BF16";
  if (bits / 8 % 4 == 0) options.accumulate = true;
  if (options.trainable && bits / 512 % 4 == 0) options.delayWeightGrads = true;
  if (bits / 32 % 4 == 0) options.fuse = {"none"};
  if (bits / 128 % 4 == 0) options.tile = 48;
  return options;
}

}  // namespace

void requireCompilation(const ScratchFile& file, std::string_view text) {
  file.write(text);
  const uint64_t hash = hashContent(text);
  const Target target = targetOf(hash);
  const CompileOptions options = optionsOf(hash >> 8);
  const Expected<Compiled> compiled = compileWithReport(file.path(), target, options);
  if (!compiled) return requireReport(compiled.error().message, file.path() + ":");
  const std::vector<std::byte> bytes = encode(*compiled->program);
  const Expected<TaskProgram> decoded = decode(bytes);
  require(decoded.ok() && *decoded == *compiled->program, "a compiled program encodes and decodes to itself");
  if ((hash >> 32) % 8 != 0) return;
  const Expected<TaskProgram> again = compile(file.path(), target, options);
  require(again.ok() && encode(*again) == bytes, "the same input gives the same program");
}

}  // namespace sluice::fuzz
