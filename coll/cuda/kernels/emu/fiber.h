// A Fiber is a flow of control with a stack of its own. Thousands of them
// share one thread of the system.
#ifndef ASSAY_EMU_FIBER_H
#define ASSAY_EMU_FIBER_H
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace emu {

class Fiber {
 public:
  Fiber() {
    void *p = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      perror("mmap of a stack");
      abort();
    }
    madvise(p, kStack, MADV_NOHUGEPAGE);
    stack_ = static_cast<uint64_t *>(p);
    *stack_ = kCanary;
  }
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;
  ~Fiber() { munmap(stack_, kStack); }

  // start makes the next resume call entry. entry does not return: it ends in
  // a suspend after which nobody resumes it.
  void start(void (*entry)()) {
    entry_ = entry;
    getcontext(&first_);
    first_.uc_stack.ss_sp = stack_;
    first_.uc_stack.ss_size = kStack;
    first_.uc_link = nullptr;
    makecontext(&first_, entry, 0);
  }

  // resume runs the fiber until it suspends itself. Only the first time is a
  // system call: contexts save the signal mask, jumps do not.
  void resume() {
    if (_setjmp(caller_)) return;
    if (entry_) {
      entry_ = nullptr;
      setcontext(&first_);
    }
    _longjmp(here_, 1);
  }

  // suspend goes back to whom resumed the fiber.
  void suspend() {
    if (!_setjmp(here_)) _longjmp(caller_, 1);
  }

  bool overrun() const { return *stack_ != kCanary; }

 private:
  static constexpr size_t kStack = 64 << 10;
  static constexpr uint64_t kCanary = 0x5afe57acc0ffee11;
  uint64_t *stack_;
  void (*entry_)() = nullptr;
  ucontext_t first_;
  jmp_buf here_, caller_;
};

}  // namespace emu
#endif
