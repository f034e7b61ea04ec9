// What the model tells ThreadSanitizer and AddressSanitizer. Without them every call does nothing.
//
// The model is not instrumented itself, and its accesses through libraries are ignored (Quiet): it announces
// those that it models, and the order of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

extern "C" {
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
__attribute__((weak)) void __tsan_read_range(void* address, size_t bytes);
__attribute__((weak)) void __tsan_write_range(void* address, size_t bytes);
__attribute__((weak)) long long __tsan_atomic64_fetch_add(volatile long long* address, long long value,
                                                          int order);
__attribute__((weak)) int __tsan_atomic32_fetch_add(volatile int* address, int value, int order);
__attribute__((weak)) long long __tsan_atomic64_load(const volatile long long* address, int order);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char* file, int line);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, size_t* bytes);
}

namespace sluice::gpu::model {

inline bool hasRaceDetection() { return __tsan_create_fiber != nullptr; }

// A point of order: what happened before a release() of it happened before what follows an acquire().
// A value that must not move while it is in use.
class Order {
 public:
  void acquire() {
    if (hasRaceDetection()) __tsan_acquire(&place_);
  }
  void release() {
    if (hasRaceDetection()) __tsan_release(&place_);
  }

 private:
  char place_ = 0;
};

inline int quietDepth = 0;  // of the fiber that runs

inline void ignoreAccesses(bool on) {
  if (!hasRaceDetection()) return;
  quietDepth += on ? 1 : -1;
  (on ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
}

// For the length of a call of the model. Each fiber has its own.
class Quiet {
 public:
  Quiet() { ignoreAccesses(true); }
  ~Quiet() { ignoreAccesses(false); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

// In a call of the model, by the fiber that runs.
inline void announceRead(const void* address, size_t bytes) {
  if (!hasRaceDetection()) return;
  ignoreAccesses(false);
  __tsan_read_range(const_cast<void*>(address), bytes);
  ignoreAccesses(true);
}
inline void announceWrite(void* address, size_t bytes) {
  if (!hasRaceDetection()) return;
  ignoreAccesses(false);
  __tsan_write_range(address, bytes);
  ignoreAccesses(true);
}

inline constexpr unsigned kNoOrder = 1;  // a switch says nothing about what happened before what

// What race detection takes for a thread; without it nothing. A resource.
//
// To make one takes longer than all else that a short run does, so some are kept for the next run. What one
// has done in a run must have happened before the next: nobody may use it before renewIdentities(), and who
// does then learns what came before by an Order.
class Identity {
 public:
  Identity() {
    if (!hasRaceDetection()) return;
    if (spare_.empty()) {
      fiber_ = __tsan_create_fiber(0);
      return;
    }
    fiber_ = spare_.back();
    spare_.pop_back();
  }
  ~Identity() {
    if (!fiber_) return;
    if (used_.size() + spare_.size() < kKept)
      used_.push_back(fiber_);
    else
      __tsan_destroy_fiber(fiber_);
  }
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  void* get() const { return fiber_; }

  // After a run: what all who are gone have done happened before what follows.
  static void renew() {
    Order end;
    for (void* const fiber : used_) {
      void* const caller = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(fiber, kNoOrder);
      end.release();
      __tsan_switch_to_fiber(caller, kNoOrder);
    }
    end.acquire();
    spare_.insert(spare_.end(), used_.begin(), used_.end());
    used_.clear();
  }

 private:
  static constexpr size_t kKept = 2048;  // ThreadSanitizer has room for some 8000
  static inline std::vector<void*> used_, spare_;

  void* fiber_ = nullptr;
};

// Something that happens by itself, as race detection sees it: after its making, as a thread of its own.
class Actor {
 public:
  Actor() { before_->release(); }
  template <class Work>
  void act(const Work& work) const {
    if (!hasRaceDetection()) return work();
    void* const caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(identity_->get(), kNoOrder);
    ignoreAccesses(true);
    before_->acquire();
    work();
    ignoreAccesses(false);
    __tsan_switch_to_fiber(caller, kNoOrder);
  }

 private:
  std::shared_ptr<Identity> identity_ = std::make_shared<Identity>();
  std::shared_ptr<Order> before_ = std::make_shared<Order>();
};

}  // namespace sluice::gpu::model
