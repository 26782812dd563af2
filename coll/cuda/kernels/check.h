// What the kernels that verify an operation are launched with. The Go side of it is abi.go of coll/cuda,
// which a test holds to this file.
#ifndef ASSAY_CHECK_H
#define ASSAY_CHECK_H
#include <stdint.h>

#define CHECK_SPANS 12  // of a launch of checksum, at most
#define CHECK_WORDS 16  // of a rank in an operation, at most: MAX_RANKS parts that go and as many that come
#define CHECK_BLOCKS 64

// A CheckSpan is memory whose checksum is computed.
struct CheckSpan {
  const char *at;
  uint64_t bytes;
};

// A Check has the checksum of each span written to the word of the same number.
struct Check {
  struct CheckSpan spans[CHECK_SPANS];
  uint64_t *words;
  uint64_t *partial;  // [CHECK_BLOCKS][CHECK_SPANS]
  uint32_t *arrived;  // blocks that have their part; 0 between launches
  uint32_t count;     // of spans
};  // 224 bytes

// Findings are in the host's memory: the words of the first operation whose words differed since the host
// has set taken to 0, and how many such operations there were.
struct Findings {
  uint32_t taken, number, count, pad;
  uint64_t words[8][CHECK_WORDS];
};  // 1040 bytes

// Words of one class must be equal. Class 255: nothing is known of the word.
struct CheckWords {
  const uint64_t *words;  // [ranks][CHECK_WORDS]
  struct Findings *found;
  uint32_t ranks, number;
  uint8_t classes[8][CHECK_WORDS];
};  // 152 bytes

#endif
