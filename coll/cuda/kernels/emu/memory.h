// Memory of the tests: what lies outside of it cannot be touched.
#ifndef ASSAY_EMU_MEMORY_H
#define ASSAY_EMU_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace emu {

constexpr size_t kPage = 4096;

// Pages are zeroed pages between two that nobody may touch.
class Pages {
 public:
  explicit Pages(size_t bytes) : size_((bytes + kPage - 1) / kPage * kPage) {
    void *p = mmap(nullptr, size_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(static_cast<char *>(p) + kPage, size_, PROT_READ | PROT_WRITE)) {
      perror("mmap");
      abort();
    }
    at_ = static_cast<char *>(p) + kPage;
  }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;
  ~Pages() { munmap(at_ - kPage, size_ + 2 * kPage); }
  char *at() const { return at_; }
  size_t size() const { return size_; }

 private:
  char *at_;
  size_t size_;
};

// A Buffer is a user's memory: at the end of its pages, or at the start or
// somewhere in between. Its neighbourhood is to stay as it is.
class Buffer {
 public:
  // The offset is from the start of the pages, or if negative from the end,
  // where -1 is the end itself.
  Buffer(size_t bytes, long offset) : pages_(bytes + 64), size_(bytes) {
    memset(pages_.at(), kAround, pages_.size());
    at_ = offset >= 0 ? pages_.at() + offset : pages_.at() + pages_.size() - bytes + offset + 1;
  }
  char *at() const { return at_; }
  size_t size() const { return size_; }
  // spoilt reports whether something was written around it.
  bool spoilt() const {
    for (const char *p = pages_.at(); p < pages_.at() + pages_.size(); p++)
      if ((p < at_ || p >= at_ + size_) && *p != kAround) return true;
    return false;
  }

 private:
  static constexpr char kAround = 0x6b;
  Pages pages_;
  char *at_;
  size_t size_;
};

}  // namespace emu
#endif
