// The structures that kernels are launched with, and the layout of a window.
// The Go side of it is abi.go of coll/cuda, which a test holds to this file.
#ifndef ASSAY_ABI_H
#define ASSAY_ABI_H
#include <stdint.h>

#define MAX_RANKS 8

// Channels: the first PACKET_CHANNELS are for packets (LL, LL128), the others
// for chunks (Simple).
#define PACKET_CHANNELS 64
#define CHUNK_CHANNELS 64

// Slots of a packet channel and pair of ranks, by the message's number modulo
// this: an operation uses two at most, and those of the one before are free
// only when the peer has begun the next one.
#define PACKET_SLOTS 4

// The second half of the chunk channels carries results.
#define RESULT_CHANNEL (CHUNK_CHANNELS / 2)

// A Ready says which message a rank is ready for, and what it takes the operation for. It is
// written with one store.
struct Ready {
  uint32_t number, sign;
};

// A Label belongs to a slot of a Simple channel: what the sender of the message in it takes the
// operation for, and which piece it is; and which piece another rank wants as message `number` in its
// own slot. Each pair is written with one store.
struct Label {
  uint32_t sign, piece;
  uint32_t number, wanted;  // wanted: the piece's number + 1, or ~0 if there is none left; 0: nothing is said
};

// A Channel is what a rank knows about one channel, by peer. It lies in the
// rank's own window. Numbers of messages count from the communicator's start
// and wrap; the first message is number 1.
struct Channel {
  uint32_t sent[MAX_RANKS];      // to the peer; written by this rank
  uint32_t received[MAX_RANKS];  // from the peer; written by this rank
  uint32_t credit[MAX_RANKS];    // to the peer, which is known to be done with them; written by this rank
  uint32_t acked[MAX_RANKS];     // the same, written by the peer
  uint32_t posted[MAX_RANKS];    // from the peer, that are there in whole; written by the peer (Simple only)
  uint32_t pushed;               // steps of exchanges in place that were pushed; written by their pushing block
  uint32_t used;                 // of those, the ones of kernels that have ended; written by their taking block
  uint32_t left;                 // of the channel with a rank's number: that rank has given up; written by it
  uint32_t claimed;              // pieces of an operation that blocks have taken on; of the first chunk channel
  struct Ready ready[MAX_RANKS]; // of the peer, whose own memory this rank is to write to; written by the peer (exchange_direct only)
  uint32_t pad[4];
};  // 256 bytes

// A Comm is a rank's view of its communicator.
struct Comm {
  char *win[MAX_RANKS];   // every rank's window, as mapped on this device
  uint64_t ll;            // offset in a window: LL slots    [PACKET_SLOTS][PACKET_CHANNELS][ranks][ll_slot]
  uint64_t ll128;         // LL128 slots                     [PACKET_SLOTS][PACKET_CHANNELS][ranks][ll128_slot]
  uint64_t chunks;        // Simple slots                    [CHUNK_CHANNELS][ranks][depth][chunk_slot]
                          // behind them: labels             [CHUNK_CHANNELS][ranks][depth]
  uint32_t ll_slot;       // bytes
  uint32_t ll128_slot;    // bytes, a multiple of 128
  uint32_t chunk_slot;    // bytes, a multiple of 128
  uint32_t depth;         // slots of a Simple channel, a power of two
  int32_t rank, ranks;
  uint32_t *stop;         // host memory: 1: kernels are to leave, 3: those that wait are to report; else 0
  struct Report *report;  // host memory: [PACKET_CHANNELS + CHUNK_CHANNELS]
  uint64_t timeout;       // ns that a wait may take; 0: for ever
};  // 136 bytes

// A Report says who waited for whom when a wait took too long or was stopped, or who
// waits when the host asks.
// There is one for each channel, written with one store; the last one stays.
struct Report {
  uint32_t who;            // reason << 24 | peer << 16 | channel; reason 1: stopped, 2: timeout, 3: asked
  uint32_t wanted, found;  // numbers of messages
  uint32_t taken;          // 0: nothing to report
};  // 16 bytes

// The Args of an operation. Arrays are by rank. Which are used is said at each
// kernel. in[rank] and out[rank] are the rank's own part.
struct Args {
  const char *in[MAX_RANKS];  // what goes to it
  char *out[MAX_RANKS];       // where that goes which comes from it; exchange_direct: where in its memory that goes which goes to it
  uint64_t send[MAX_RANKS];   // bytes of in
  uint64_t recv[MAX_RANKS];   // bytes of out
  uint8_t to[MAX_RANKS];      // channels of the message to it; 0: as many as there are
  uint8_t from[MAX_RANKS];    // channels of the message from it; 0: likewise
  uint64_t factor;    // an element: what this rank's input is multiplied by first (scale 1), or where that is (3)
  uint32_t scale;     // 0: nothing, 1: factor, 2: integers are divided by divisor at the end, 3: what is at factor
  uint32_t divisor;
  // Blocks, or blocks of each role. Those of one channel follow one another in the grid: they wait for
  // one another, and blocks start in order, so that a grid ends wherever the blocks of one channel fit.
  // Of an exchange, all that wait for no other may come first (pushes_ahead).
  uint32_t channels;
  uint32_t chunk;     // bytes of a step, a multiple of 128 (Simple); exchange_direct: bytes / 16 of a channel's piece
  uint32_t owners;    // bits: ranks that reduce, or pass on; of a barrier and of combine: whose copies it is for
  uint32_t targets;   // bits: ranks that get the results of the owners
  int32_t root;       // of a broadcast
  uint32_t symmetric; // every rank sends to every other one and receives from it
  uint32_t in_place;  // of an exchange: what comes may overwrite what goes, each step the same one
  uint32_t phased;    // of an exchange: with one peer after the other
  uint32_t sign;      // what the rank takes the operation for: its messages carry it
  uint32_t row;       // log2 of a channel's units, if a block has that many threads for each peer; 0: see Share
};  // 328 bytes

// A Norm is what follows an AllReduce of sums, see norm.cuh.
struct Norm {
  const char *weight;   // one row
  char *residual;       // rows: the sum is added to them
  uint32_t rows, row;   // row: bytes
  float eps;
  uint32_t split;       // log2 of the blocks that share a row; they are a cluster
};  // 32 bytes

// A ring of copies counts what is moved of so many rounds at a time. It has fewer slots.
#define RING_ROUNDS 32

// A RingState is what a rank is told about a ring of copies. It lies behind its copy buffer. Numbers of
// rounds count from the communicator's start and wrap; a number stands for all rounds before it.
struct RingState {
  struct Ready passed[2];        // rounds that the next rank, and the one behind it, are through with; written by them
  struct Ready granted;          // rounds whose copies belong to the previous rank's operation; written by it
  uint32_t arrived;              // rounds whose copies have arrived; written by the previous rank's stream
  uint32_t go;                   // rounds whose copies to the next rank may begin: its stream waits for them
  uint32_t through;              // rounds that this rank is through with
  uint32_t claimed;              // pieces that blocks have taken on, and one more for each block at its end
  uint32_t pad[22];
  uint32_t moved[RING_ROUNDS];   // pieces of a round that were moved, by its number modulo this
};  // 256 bytes

// A Ring is what a rank does in the rounds of a collective by copy engines: copyring.go of coll/cuda.
struct Ring {
  char *in_slots;                           // of this rank: chunk bytes each
  struct RingState *own, *next;             // of this rank and of the next one, if there is one
  struct RingState *prev, *before;          // of the previous rank and of the one before it, or null
  uint64_t segment, total;                  // bytes: of the longest segment; of all of them, where the last ones may be shorter, or 0
  uint32_t chunk, whole, tail;              // bytes of a chunk; where the last one is cut into parts: chunks before it, and bytes of a part
  uint32_t base, after;                     // numbers of round 0, and of that of the next operation
  uint32_t first, end;                      // rounds of this rank: first to end - 1
  uint32_t lag, chunks, steps, reduces;     // steps: 0: a chain; reduces: steps in which what comes is reduced, the last of them into the output
  uint32_t position, shift;                 // position: in a chain; shift: how far behind the rank's own segment the first one that comes is
  uint32_t one_in, one_out;                 // the input or the output has one segment only
  uint32_t keeps;                           // 1: the rank's own input belongs in its output
  uint32_t behind;                          // the next rank passes on what comes to it
  uint32_t slots;
  uint32_t piece, pieces;                   // bytes that a block moves at a time, and how many of these a chunk has
  uint32_t claim;                           // claimed when the operation begins
};  // 136 bytes

#endif
