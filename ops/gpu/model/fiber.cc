#include "ops/gpu/model/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace sluice::gpu::model {
namespace {

constexpr size_t kStackBytes = size_t{1} << 18;  // committed as it is touched
// Stacks of many fibers start at different offsets: else the lines that each touches fall into the same few
// sets of the caches, and a switch misses them.
constexpr size_t kOffsetBytes = 1088, kOffsets = 64;

// Stacks of fibers that are gone. To map a new one, and to touch its pages, takes a fifth of the time of a
// short run.
std::vector<std::byte*> spareStacks;

std::byte* takeStack() {
  if (!spareStacks.empty()) {
    std::byte* const stack = spareStacks.back();
    spareStacks.pop_back();
    return stack;
  }
  void* const stack =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) std::abort();  // a test's machine without memory for stacks
  return static_cast<std::byte*>(stack);
}

// AddressSanitizer remembers what was on it. For ThreadSanitizer the end of a run comes before the next one.
void giveStack(std::byte* stack) {
  if (__sanitizer_start_switch_fiber)
    ::munmap(stack, kStackBytes);
  else
    spareStacks.push_back(stack);
}

}  // namespace

Fiber::~Fiber() {
  if (stack_) giveStack(stack_);
}

void Fiber::abandon() {
  isAbandoned_ = true;
  resume();
}

void Fiber::start(std::function<void()> work, size_t number) {
  work_ = std::move(work);
  stack_ = takeStack();
  ::getcontext(&own_.context);
  own_.context.uc_stack.ss_sp = stack_;
  own_.context.uc_stack.ss_size = kStackBytes - number % kOffsets * kOffsetBytes;
  own_.context.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&own_.context, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

void Fiber::change(Place& from, Place& to, bool isFirst) {
  if (hasRaceDetection() || __sanitizer_start_switch_fiber) {
    ::swapcontext(&from.context, &to.context);
    return;
  }
  if (_setjmp(from.jump) != 0) return;
  if (isFirst) ::setcontext(&to.context);
  _longjmp(to.jump, 1);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* const fiber = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &fiber->callerStack_, &fiber->callerStackBytes_);
  if (!fiber->isAbandoned_) fiber->work_();
  fiber->switchBack();
  std::abort();  // resumed after its end
}

void Fiber::resume() {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&callerFakeStack_, stack_, kStackBytes);
  if (hasRaceDetection()) {
    callerIdentity_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(identity_.get(), kNoOrder);
  }
  const int depth = std::exchange(quietDepth, quiet_);
  change(caller_, own_, !std::exchange(isEntered_, true));
  quiet_ = std::exchange(quietDepth, depth);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(callerFakeStack_, nullptr, nullptr);
}

void Fiber::leave() {
  switchBack();
  if (isAbandoned_) throw Abandoned();
}

void Fiber::switchBack() {
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&fakeStack_, callerStack_, callerStackBytes_);
  if (hasRaceDetection()) __tsan_switch_to_fiber(callerIdentity_, kNoOrder);
  change(own_, caller_, false);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(fakeStack_, &callerStack_, &callerStackBytes_);
}

}  // namespace sluice::gpu::model
