// What the files of libnccl.so.2 have in common.
#ifndef ASSAY_FRONT_H
#define ASSAY_FRONT_H
#include "api.h"
#include "engine.h"

// The engine's functions.
struct engine {
#define FIELD(type, name, args) type(*name) args;
  ASSAY_ENGINE(FIELD)
#undef FIELD
};

// load opens the engine, once. What is wrong is said as by fail.
ncclResult_t load(const struct engine **e);

// fail keeps what ncclGetLastError says, and returns the code.
__attribute__((format(printf, 2, 3))) ncclResult_t fail(ncclResult_t code, const char *format, ...);

// said keeps what the engine said, and returns its code.
ncclResult_t said(int code, const char *text);

// given refuses a NULL argument. What else a pointer may be only the engine can tell, which does
// not look at what it points to.
ncclResult_t given(const char *what, const char *name, const void *argument);

// id is what the engine knows a communicator by.
static inline uintptr_t id(ncclComm_t c) { return (uintptr_t)c; }

// ASK calls one of the engine's functions about a communicator.
#define ASK(what, call)                               \
  const struct engine *e;                             \
  char text[ASSAY_TEXT];                              \
  ncclResult_t r = given(what, "communicator", comm); \
  if (r == ncclSuccess) r = load(&e);                 \
  if (r == ncclSuccess) r = said(call, text)

// drop_all forgets what was registered with a communicator.
void drop_all(ncclComm_t comm);

// Groups, of this thread. They do at once what comes outside of one.
ncclResult_t add(const char *what, const struct assay_op *o, ncclComm_t c);
struct waiting;
ncclResult_t register_window(const char *what, ncclComm_t c, const struct assay_window *w, struct waiting *a);
ncclResult_t pause_comm(const char *what, ncclComm_t c, int resume);
ncclResult_t make(struct assay_new *n, ncclComm_t *to);
ncclResult_t group_start(void);
ncclResult_t group_end(void);

// spoil makes the group fail, as a whole, and returns the error.
ncclResult_t spoil(ncclResult_t r);
#endif
