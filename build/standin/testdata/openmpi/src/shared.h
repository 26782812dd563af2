/* The memory that orterun gives its ranks: this header, then one slot each. */
#ifndef STANDIN_SHARED_H
#define STANDIN_SHARED_H
#include <stdatomic.h>
#include <stddef.h>

#define STANDIN_SLOT ((size_t)64 << 10)
struct standin_shared {
	_Alignas(64) atomic_int arrived;
	_Alignas(64) atomic_int generation;
};
static inline size_t standin_shared_size(int ranks) { return sizeof(struct standin_shared) + (size_t)ranks * STANDIN_SLOT; }
#endif
