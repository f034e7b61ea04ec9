#include "tests/testing/catch_runner.h"

int main(int argc, char** argv) { return sluice::runCases(argc, argv); }
