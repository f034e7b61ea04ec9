// Starts threads; if the system has too few, std::thread throws, but these functions return an error.
//
// Any thread may call them.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "runtime/base/expected.h"

namespace sluice {

// Debuggers, profilers and `top -H` show the thread as "sluice-" and the name, cut after 15 characters in
// all. Error: the reason why the system cannot start a thread.
Expected<std::thread> startThread(std::string_view name, std::function<void()> body);

// The error that only `started` of the `wanted` threads for `what` could be started, and why.
Error tooFewThreads(int started, int wanted, const char* what, const Error& why);

// Calls body(0) to body(count - 1), each in its own thread, and returns when all have returned. If a thread
// cannot be started, no body is called, and the error has the number of threads that could be started.
Status runTogether(int count, const char* what, const std::function<void(int)>& body);

}  // namespace sluice
