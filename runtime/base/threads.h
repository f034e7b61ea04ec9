// Threads where the system may have too few: std::thread throws then, these functions return an error.
//
// Any thread may call.
#pragma once

#include <functional>
#include <thread>

#include "runtime/base/expected.h"

namespace sluice {

// Error: why the system cannot start one.
Expected<std::thread> startThread(std::function<void()> body);

// The error that only `started` of `wanted` threads for `what` could be started, and why.
Error tooFewThreads(int started, int wanted, const char* what, const Error& why);

// Calls body(0) to body(count - 1), each in a thread of its own, and returns when all have returned. Where
// one of the threads cannot be started, no body is called, and the error has the number of threads that could
// be started.
Status runTogether(int count, const char* what, const std::function<void(int)>& body);

}  // namespace sluice
