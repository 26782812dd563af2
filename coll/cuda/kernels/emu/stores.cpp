#include "stores.h"

#include <string.h>
#include <algorithm>
#include <atomic>

namespace emu {

static bool overlap(const char *a, unsigned n, const char *b, unsigned m) { return a < b + m && b < a + n; }

void Stores::add(const Store &s) {
  queue_.push_back(s);
  filter_[hash(s.at)]++;
}

bool Stores::visible(const Store &s, unsigned thread) {
  return s.thread == thread || s.reach == Reach::block || (s.reach == Reach::warp && s.thread / 32 == thread / 32);
}

void Stores::load(void *to, const char *p, unsigned size, unsigned thread) const {
  memcpy(to, p, size);
  for (unsigned b = 0; b < size; b += 8) {
    if (!filter_[hash(p + b)]) continue;
    for (const Store &s : queue_) {
      if (!overlap(s.at, s.size, p, size) || !visible(s, thread)) continue;
      const char *lo = std::max<const char *>(s.at, p), *hi = std::min<const char *>(s.at + s.size, p + size);
      memcpy(static_cast<char *>(to) + (lo - p), reinterpret_cast<const char *>(&s.value) + (lo - s.at), hi - lo);
    }
    return;
  }
}

void Stores::widen_to_warp(unsigned warp, uint32_t mask) {
  for (Store &s : queue_)
    if (s.reach == Reach::thread && s.thread / 32 == warp && mask >> s.thread % 32 & 1) s.reach = Reach::warp;
}

void Stores::widen_to_block() {
  for (Store &s : queue_) s.reach = Reach::block;
}

void Stores::widen(unsigned thread) {
  for (Store &s : queue_)
    if (s.thread == thread) s.reach = Reach::block;
}

int Stores::pending(unsigned thread) const {
  for (size_t i = 0; i < queue_.size(); i++)
    if (visible(queue_[i], thread)) return int(i);
  return -1;
}

bool Stores::overlaps(const char *p, unsigned size) const {
  for (const Store &s : queue_)
    if (overlap(s.at, s.size, p, size)) return true;
  return false;
}

bool Stores::same_line(const Store &a, const Store &b) const {
  return a.line && b.line && a.instruction == b.instruction && a.thread / 32 == b.thread / 32 &&
         reinterpret_cast<uintptr_t>(a.at) / 128 == reinterpret_cast<uintptr_t>(b.at) / 128;
}

bool Stores::complete(size_t i) const {
  uint32_t have = 0;
  for (const Store &s : queue_)
    if (same_line(s, queue_[i])) have |= 1u << (reinterpret_cast<uintptr_t>(s.at) % 128 / 8);
  return have == 0xffff;
}

// apply writes the i-th store, after those before it to the same bytes.
bool Stores::apply(size_t i) {
  bool changed = false;
  for (size_t j = 0; j <= i; j++) {
    Store s = queue_[j];
    if (j < i && !overlap(s.at, s.size, queue_[i].at, queue_[i].size)) continue;
    changed |= memcmp(s.at, &s.value, s.size) != 0;
    memcpy(s.at, &s.value, s.size);
    filter_[hash(s.at)]--;
    queue_.erase(queue_.begin() + j);
    if (j == i) break;
    i--, j--;
  }
  return changed;
}

bool Stores::arrive(size_t i) {
  if (!queue_[i].line || !complete(i)) return apply(i);
  const Store of = queue_[i];
  char *line = of.at - reinterpret_cast<uintptr_t>(of.at) % 128;
  bool changed = false;
  for (char *at = line; at < line + 128; at += 8) {
    auto s = std::find_if(queue_.begin(), queue_.end(), [&](const Store &s) { return s.at == at && same_line(s, of); });
    changed |= apply(s - queue_.begin());
    std::atomic_signal_fence(std::memory_order_release);
  }
  return changed;
}

}  // namespace emu
