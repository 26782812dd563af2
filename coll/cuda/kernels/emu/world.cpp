#include "world.h"

namespace emu {

constexpr unsigned kMaxThreads = 224;
// kOld is how far an acknowledgement is behind at most.
constexpr uint32_t kOld = 0x10000;
constexpr uint32_t kPacketSlot = 1024 * 16;

World::World(uint64_t seed, int n) : ranks(n), machine(seed), stop(n), reports(n) {
  Random &r = machine.random;
  threads = 192 + 32 * r.below((kMaxThreads - 192) / 32 + 1);  // of each half two warps serve the others
  one_way = r.one_in(4);
  one_way_over = Protocol(r.below(3));
  Comm c = {};
  c.ranks = ranks;
  c.ll_slot = c.ll128_slot = kPacketSlot;
  c.chunk_slot = 128 << r.below(3);
  c.depth = 1 << r.below(4);
  const uint64_t packets = uint64_t(PACKET_SLOTS) * PACKET_CHANNELS * ranks * kPacketSlot;
  c.ll = uint64_t(PACKET_CHANNELS + CHUNK_CHANNELS) * sizeof(Channel);
  c.ll128 = c.ll + packets;
  c.chunks = c.ll128 + packets;
  uint64_t window = c.chunks + uint64_t(CHUNK_CHANNELS) * ranks * c.depth * (c.chunk_slot + sizeof(Label));
  // The page behind each window, too, cannot be touched.
  const uint64_t stride = (window + kPage - 1) / kPage * kPage + kPage;
  windows_ = std::make_unique<Pages>(stride * ranks);
  remote = {reinterpret_cast<uintptr_t>(windows_->at()), windows_->size()};
  for (int i = 0; i < ranks; i++) {
    c.win[i] = windows_->at() + stride * i;
    mprotect(c.win[i] + stride - kPage, kPage, PROT_NONE);
    machine.name(c.win[i], c.ll, "channels of rank " + std::to_string(i));
    machine.name(c.win[i] + c.ll, packets, "LL slots of rank " + std::to_string(i));
    machine.name(c.win[i] + c.ll128, packets, "LL128 slots of rank " + std::to_string(i));
    machine.name(c.win[i] + c.chunks, window - c.chunks, "chunks of rank " + std::to_string(i));
  }
  for (int i = 0; i < ranks; i++) {
    reports[i].resize(PACKET_CHANNELS + CHUNK_CHANNELS);
    c.rank = i;
    c.stop = &stop[i];
    c.report = reports[i].data();
    comms.push_back(c);
  }
  static const uint32_t bases[] = {0, 0xfffffff0, 0x7ffffff8, 0x80000005};
  uint32_t base = bases[r.below(4)];
  number_channels(base, base ? History(r.below(3)) : History::fresh);
}

// number_channels makes the windows as base messages leave them, or a few more.
void World::number_channels(uint32_t base, History h) {
  for (int rank = 0; rank < ranks; rank++) {
    for (int ch = 0; ch < PACKET_CHANNELS + CHUNK_CHANNELS; ch++) {
      Channel &s = channel(rank, ch);
      for (int p = 0; p < ranks; p++) {
        const uint32_t to = base + (base ? (ch + rank * 3 + p * 5) % 7 : 0), from = base + (base ? (ch + p * 3 + rank * 5) % 7 : 0);
        s.sent[p] = s.credit[p] = s.acked[p] = to;
        s.received[p] = s.posted[p] = from;
        if (ch >= PACKET_CHANNELS)
          s.credit[p] = to - comms[0].depth;
        else if (h == History::one_way)
          s.credit[p] = to - PACKET_SLOTS;
        else if (h == History::symmetric)
          s.acked[p] = to - kOld;
      }
    }
  }
}

Span World::fresh(int rank, size_t bytes, size_t element) {
  Random &r = machine.random;
  long offset = r.one_in(2) ? -1 : long(element * r.below(r.one_in(2) ? 1 : uint32_t(64 / element)));
  memory_.push_back(std::make_unique<Memory>(rank, bytes, offset));
  Memory *m = memory_.back().get();
  m->of = operation;
  for (size_t i = 0; i < bytes; i++) m->want[i] = char(r.next());
  memcpy(m->buffer.at(), m->want.data(), bytes);
  return {m, 0, bytes};
}

Span World::input(int rank, size_t bytes, size_t element) {
  Random &r = machine.random;
  if (!memory_.empty() && r.one_in(4)) {
    for (int tries = 0; tries < 5; tries++) {
      Memory *m = memory_[r.below(uint32_t(memory_.size()))].get();
      if (m->rank != rank || m->buffer.size() < bytes || m->close >= 0) continue;
      size_t at = r.below(uint32_t(m->buffer.size() - bytes + 1));
      while (reinterpret_cast<uintptr_t>(m->buffer.at() + at) % element && at) at--;
      if (reinterpret_cast<uintptr_t>(m->buffer.at() + at) % element) continue;
      return {m, at, bytes};
    }
  }
  return fresh(rank, bytes, element);
}

Span World::output(int rank, size_t bytes, size_t element) { return fresh(rank, bytes, element); }

std::string World::check() const {
  std::string e = check_numbers();
  return e.empty() ? check_memory() : e;
}

// check_numbers looks whether ranks agree on how many messages there were, and
// know enough of those that are done with to go on.
std::string World::check_numbers() const {
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < ranks; b++)
      for (int ch = 0; a != b && ch < PACKET_CHANNELS + CHUNK_CHANNELS; ch++) {
        const Channel &s = channel(a, ch), &r = channel(b, ch);
        const bool chunks = ch >= PACKET_CHANNELS;
        const char *wrong = nullptr;
        if (s.sent[b] != r.received[a]) wrong = "sent and received";
        if (chunks && r.posted[a] != s.sent[b]) wrong = "sent and posted";
        if (chunks && s.pushed != s.used) return "channel " + std::to_string(ch) + " of " + std::to_string(a) + ": steps in place were not counted alike";
        if (chunks && s.acked[b] != s.sent[b]) wrong = "sent and acknowledged";
        if (s.sent[b] - s.acked[b] > kOld + 64) wrong = "sent and acknowledged";
        if (s.sent[b] - s.credit[b] > 64) wrong = "sent and credit";
        if (wrong) return "channel " + std::to_string(ch) + " from " + std::to_string(a) + " to " + std::to_string(b) + ": numbers do not match: " + wrong;
      }
  return "";
}

std::string World::check_memory() const {
  for (int rank = 0; rank < ranks; rank++) {
    std::string e = check(wants(rank));
    if (!e.empty()) return e;
  }
  return "";
}

Wants World::wants(int rank) const {
  Wants w;
  for (const auto &m : memory_)
    if (m->rank == rank) w.emplace_back(m.get(), m->want);
  return w;
}

std::string World::check(const Wants &w) const {
  for (const auto &[memory, want] : w) {
    std::string e = check_one(*memory, want);
    if (!e.empty()) return e;
  }
  return "";
}

std::string World::check_one(const Memory &m, const std::vector<char> &want) const {
  std::string who = m.of + ": memory of rank " + std::to_string(m.rank);
  if (m.buffer.spoilt()) return who + ": written outside of it";
  for (size_t i = 0; i < want.size(); i++) {
    if (m.buffer.at()[i] == want[i]) continue;
    if (m.close >= 0) {
      const size_t size = size_of(m.close), at = i / size * size;
      const float x = load(m.close, m.buffer.at() + at), y = load(m.close, &want[at]);
      if (fabsf(x - y) <= fabsf(y) * (size == 2 ? 1.0f / 128 : 1e-5f)) continue;
    }
    char text[200];
    snprintf(text, sizeof text, ": byte %zu of %zu is %02x, want %02x", i, want.size(), m.buffer.at()[i] & 255, want[i] & 255);
    return who + text;
  }
  return "";
}

bool World::gave_up(int rank) const {
  for (const Report &r : reports[rank])
    if (r.taken && r.who >> 24 != 3) return true;
  return false;
}

}  // namespace emu
