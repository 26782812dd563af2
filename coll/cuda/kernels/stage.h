// What a kernel and the host tell each other of an operation that goes through the host's memory. The Go side
// of it is abi.go of coll/cuda, which a test holds to this file.
#ifndef ASSAY_STAGE_H
#define ASSAY_STAGE_H
#include <stdint.h>

// Copies that the host may have listed and the kernel not done, a power of two.
#define LISTED 64

// A StageList lists copies. It lies in the host's memory. Copies are numbered from the communicator's start, and
// the first one is number 1; the numbers wrap. What the host writes of a copy comes in pairs, a word and the copy's
// number, each with one store: the word is there if the number is. The words are both halves of the address of
// what is copied, both of that where it goes, and the bytes; STAGE_END there: none, and the kernel ends.
struct StageList {
  uint32_t done;   // of the last copy that is done; written by the kernel
  uint32_t begun;  // of the last operation whose kernel has begun; written by the kernel
  uint32_t stop;   // not 0: the kernel ends as soon as it can; written by the host
  uint32_t pad[13];
  uint32_t copies[LISTED][16];  // by number modulo LISTED
};  // 4160 bytes

#define STAGE_END 0xffffffffu

// Blocks that may share the copies of a lane in one direction.
#define SHARES 4

// A Stage is what such a kernel is launched with: lists for each lane, even ones of copies to the host, odd ones of
// copies from it. Of each of the two a lane has SHARES, the first `shares` of which have a block.
struct Stage {
  struct StageList *lists;
  uint32_t number;  // the operation's
  uint32_t shares;
};  // 16 bytes

#endif
