// sluice verify: proves a program for every routing.
#include "runtime/program/verify.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "runtime/program/codec.h"
#include "tools/cli/command.h"
#include "tools/cli/core_name.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

Expected<int> verifyFile(const std::string& path) {
  Expected<TaskProgram> program = readProgram(path);
  if (!program) return program.error();
  const auto start = std::chrono::steady_clock::now();
  const Expected<VerifiedProgram> verified = verify(std::move(*program));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  if (!verified) return Error{fmt::format("{}: {}", path, verified.error().message)};
  const TaskProgram& p = **verified;
  size_t records = 0;
  for (const Lane& lane : p.lanes)
    for (const auto& seat : lane.seats) records += seat.size();
  return succeededIf(printText(
      fmt::format("{}: verified: {} entries, {} families, {} events, {} tasks per window, {}, {} ranks; "
                  "in {:.1f} ms\n",
                  path, p.entries.size(), p.families.size(), p.events.size(), records, coreCounts(p),
                  p.mesh.peers(), time.count())));
}

}  // namespace

Command addVerify(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("verify", "prove that a program is complete, in order, and cannot hang");
  const auto path = std::make_shared<std::string>();
  addProgram(*app, *path);
  app->footer(R"(The proof holds for every routing; docs/SCHEDULE.md explains it.

example:
  sluice verify layer.slp

exit status: 0 verified, 1 refused (the message names family, task, event and core), 2 wrong usage)");
  return {app, [path] { return verifyFile(*path); }};
}

}  // namespace sluice::tools
