#include "tests/fuzz/program_checks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/program/codec.h"
#include "runtime/program/diff.h"
#include "runtime/program/text.h"
#include "runtime/program/verify.h"
#include "tests/fuzz/fuzz.h"
#include "tools/cli/dump_json.h"

namespace sluice::fuzz {

void requireProgram(const TaskProgram& program) {
  // by bytes: factors may be no numbers, which equal nothing
  const std::vector<std::byte> bytes = encode(program);
  const Expected<TaskProgram> decoded = decode(bytes);
  // readers have limits, which writeProgram() keeps: longer names and larger sizes are not written
  const bool isTooLarge = !decoded && decoded.error().message.find("expected at most") != std::string::npos;
  require(isTooLarge || (decoded.ok() && encode(*decoded) == bytes),
          "a program encodes and decodes to itself");
  const std::string text = printProgram(program);
  const Expected<TaskProgram> parsed = parseProgram(text, "text");
  require(parsed.ok() && encode(*parsed) == bytes, "a program prints and parses to itself");
  if (*parsed == program)
    require(diffPrograms(program, *parsed).empty(), "equal programs have no differences");
  require(nlohmann::json::accept(tools::printJson(program, {})), "a program prints as JSON");
  const Expected<VerifiedProgram> verified = verify(program);
  if (!verified) requireMessage(verified.error().message, "");
}

}  // namespace sluice::fuzz
