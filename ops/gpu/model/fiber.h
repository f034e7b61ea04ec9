// Fibers: contexts of execution that one thread of the process switches between, known to sanitizers.
//
// Resource type; made and used by one thread.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>

#include "ops/gpu/model/sanitizers.h"

namespace sluice::gpu::model {

struct Abandoned {};

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `work`, which catches Abandoned, when it is first resumed. When it has returned, or if the fiber is
  // abandoned before, resume() returns for the last time. `number` tells fibers apart that run in turns.
  // Race detection knows no order between this call and the work.
  void start(std::function<void()> work, size_t number);

  // From the thread's own context: goes on in the fiber, until it calls leave().
  void resume();
  // From the fiber: back to where resume() was called. Throws Abandoned.
  void leave();

  // From the thread's own context, for a fiber that is not to go on: leave() throws Abandoned there.
  void abandon();

 private:
  // Where a switch goes on. swapcontext() also saves the mask of signals, by a call of the system that takes
  // most of the time of a switch; jumps are for where no sanitizer follows the stacks.
  struct Place {
    ucontext_t context{};
    jmp_buf jump{};
  };
  static void change(Place& from, Place& to, bool isFirst);
  static void enter(unsigned high, unsigned low);
  void switchBack();

  Place own_, caller_;
  bool isEntered_ = false;
  std::byte* stack_ = nullptr;
  std::function<void()> work_;
  Identity identity_;
  int quiet_ = 0;  // quietDepth where it left
  bool isAbandoned_ = false;
  void* callerIdentity_ = nullptr;
  // of AddressSanitizer
  void* fakeStack_ = nullptr;
  void* callerFakeStack_ = nullptr;
  const void* callerStack_ = nullptr;
  size_t callerStackBytes_ = 0;
};

}  // namespace sluice::gpu::model
