// Catch2 with its own code, which takes ten seconds to compile, in one object.
#pragma once

namespace sluice {

// Runs the cases that are linked, or those that the arguments choose; returns how many failed.
int runCases(int argc, char** argv);

}  // namespace sluice
