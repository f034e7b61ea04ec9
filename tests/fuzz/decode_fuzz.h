// What is fuzzed, for libFuzzer and for the replay test alike.
#pragma once

#include <cstddef>
#include <cstdint>

// Decodes the bytes, with their seal corrected where one is found; what decodes must encode again, print,
// parse and be verified or refused. Aborts where it does not.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
