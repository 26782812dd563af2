// A World is a communicator of several GPUs, with the memory of its users.
#ifndef ASSAY_EMU_WORLD_H
#define ASSAY_EMU_WORLD_H
#include <memory>
#include <string>
#include <vector>

#include "catalogue.h"
#include "machine.h"
#include "memory.h"

namespace emu {

// A Memory is a user's buffer. want is what it holds when all operations that
// were made so far have ended.
struct Memory {
  int rank;
  Buffer buffer;
  std::vector<char> want;
  std::string of;  // the operation that it was made for
  int close = -1;  // a type: want is so but for rounding, and no operation reads it
  Memory(int r, size_t bytes, long offset) : rank(r), buffer(bytes, offset), want(bytes) {}
};

// A Span is some of a buffer.
struct Span {
  Memory *memory = nullptr;
  size_t at = 0, size = 0;
  char *address() const { return memory ? memory->buffer.at() + at : nullptr; }
  char *want() const { return memory->want.data() + at; }
  Span part(size_t from, size_t bytes) const { return {memory, at + from, bytes}; }
};

// Wants are what some memory holds at one time.
using Wants = std::vector<std::pair<const Memory *, std::vector<char>>>;

// History is how a communicator came to where its numbers stand.
enum class History {
  fresh,      // evenly
  one_way,    // for long nothing was symmetric: credit is old
  symmetric,  // for long everything was: acknowledgements are old
};

class World {
 public:
  World(uint64_t seed, int ranks);

  // input is a buffer with random contents, or some of one that operations
  // before leave. Addresses are multiples of an element's size.
  Span input(int rank, size_t bytes, size_t element);
  Span output(int rank, size_t bytes, size_t element);
  // check says what is wrong with the memory of users and channels, or nothing.
  std::string check() const;
  // wants are what the memory of a rank holds when it has done all operations that were made so far.
  Wants wants(int rank) const;
  // check says which memory does not hold what is wanted, or nothing.
  std::string check(const Wants &w) const;
  // gave_up reports whether a kernel of a rank has left before it was done, and said so.
  bool gave_up(int rank) const;

  int ranks;
  unsigned threads;  // of a block
  Machine machine;
  std::vector<Comm> comms;
  std::vector<uint32_t> stop;                 // by rank
  std::vector<std::vector<Report>> reports;   // by rank and channel
  std::string operation;                      // the one that is being made
  bool one_way;                               // most messages go from a lower rank to a higher one
  Protocol one_way_over;

 private:
  Span fresh(int rank, size_t bytes, size_t element);
  void number_channels(uint32_t base, History h);
  Channel &channel(int rank, int ch) const { return reinterpret_cast<Channel *>(comms[rank].win[rank])[ch]; }
  std::string check_numbers() const;
  std::string check_memory() const;
  std::string check_one(const Memory &m, const std::vector<char> &want) const;

  std::unique_ptr<Pages> windows_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace emu
#endif
