// A network plugin over TCP, for tests. It does what the interface allows and
// real plugins do at times, when the environment asks for it:
//
//	ASSAY_TEST_NET_DEVICES=n   how many devices there are (2)
//	ASSAY_TEST_NET_INIT=n      init returns n (0)
//	ASSAY_TEST_NET_CONNECT=n   connect and accept say n times: not yet (0)
//	ASSAY_TEST_NET_BUSY=n      isend and irecv say n times of n+1: not now (0)
//	ASSAY_TEST_NET_PARTIAL=n   each call moves n bytes at most (all)
//	ASSAY_TEST_NET_FAIL=n      the nth test of a connection fails (never)
//	ASSAY_TEST_NET_LISTEN=n    listen returns n (0)
//	ASSAY_TEST_NET_DEAF=1      a lost peer is not noticed: requests are never done
//	ASSAY_TEST_NET_BREAK=rule  breaks the interface: length, behind, few, speed, handle, block or bytes
//	ASSAY_TEST_NET_STRICT=1    closing a connection with requests under way prints a line and aborts
//
// Compiled with -DNAME="…" it has another name; with -DONLY=n it exports the
// table of version n only, else those of 8 and 12. Its tables are written down
// here once more, not taken from the code that they test.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef NAME
#define NAME "assay test"
#endif

enum { success = 0, system_error = 2, internal_error = 3, invalid_argument = 4, remote_error = 6 };
enum { max_requests = 32, handle_size = 128 };

typedef void (*logger_t)(int, unsigned long, const char *, int, const char *, ...);
static logger_t logger;
#define INFO(...) logger(3, 0x10, __FILE__, __LINE__, __VA_ARGS__)
#define WARN(...) logger(2, 0x10, __FILE__, __LINE__, __VA_ARGS__)

static long setting(const char *name, long unset) {
  const char *s = getenv(name);
  return s && *s ? atol(s) : unset;
}

static int breaks(const char *rule) {
  const char *s = getenv("ASSAY_TEST_NET_BREAK");
  return s && !strcmp(s, rule);
}

struct handle {
  struct sockaddr_in at;
  uint32_t state; // of the one that connects: it is the same memory in each call
};

struct listener {
  int fd;
  long not_yet;
};

// A frame goes before each message.
struct frame {
  uint32_t length, tag;
};

struct request {
  struct comm *comm;
  int used, tag;
  char *data;
  size_t size, off; // of the buffer, and how much of frame and message has passed
  struct frame frame;
  uint64_t number; // in the order of the calls
};

struct comm {
  int fd, receives;
  long busy, partial, fail, refused;
  uint64_t begun, moved; // requests begun, and wholly passed, in order
  struct request requests[max_requests];
  int regions;
};

static int init_all(logger_t log) {
  logger = log;
  long result = setting("ASSAY_TEST_NET_INIT", 0);
  INFO("NET/Test : init returns %ld", result);
  if (result) WARN("NET/Test : %s", "told to fail");
  return (int)result;
}

static int devices(int *n) {
  *n = (int)setting("ASSAY_TEST_NET_DEVICES", 2);
  return success;
}

static int set_nonblocking(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC) ? system_error : success;
}

static int do_listen(int device, void *handle, void **listener) {
  (void)device;
  long result = setting("ASSAY_TEST_NET_LISTEN", 0);
  if (result) return (int)result;
  struct handle *h = handle;
  _Static_assert(sizeof *h <= handle_size, "handle");
  struct listener *l = calloc(1, sizeof *l);
  l->not_yet = setting("ASSAY_TEST_NET_CONNECT", 0);
  l->fd = socket(AF_INET, SOCK_STREAM, 0);
  h->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  h->state = 0;
  socklen_t n = sizeof h->at;
  if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&h->at, n) || listen(l->fd, 1) || getsockname(l->fd, (struct sockaddr *)&h->at, &n)) {
    WARN("NET/Test : listen: %s", strerror(errno));
    return system_error;
  }
  if (set_nonblocking(l->fd)) return system_error;
  if (breaks("handle")) ((char *)handle)[handle_size] = 1;
  *listener = l;
  return success;
}

static struct comm *new_comm(int fd, int receives) {
  struct comm *c = calloc(1, sizeof *c);
  c->fd = fd;
  c->receives = receives;
  c->busy = setting("ASSAY_TEST_NET_BUSY", 0);
  c->partial = setting("ASSAY_TEST_NET_PARTIAL", 1L << 40);
  c->fail = setting("ASSAY_TEST_NET_FAIL", 0);
  return c;
}

static int do_connect(int device, void *handle, void **comm) {
  (void)device;
  struct handle *h = handle;
  *comm = NULL;
  if (h->state++ < setting("ASSAY_TEST_NET_CONNECT", 0)) return success;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&h->at, sizeof h->at)) {
    WARN("NET/Test : connect: %s", strerror(errno));
    return system_error;
  }
  if (set_nonblocking(fd)) return system_error;
  *comm = new_comm(fd, 0);
  return success;
}

static int do_accept(void *listener, void **comm, void **device) {
  (void)device;
  struct listener *l = listener;
  *comm = NULL;
  if (l->not_yet-- > 0) return success;
  if (breaks("block")) usleep(1100 * 1000);
  int fd = accept(l->fd, NULL, NULL);
  if (fd < 0) return errno == EAGAIN ? success : system_error;
  if (set_nonblocking(fd)) return system_error;
  *comm = new_comm(fd, 1);
  return success;
}

static int reg_mr(void *comm, void *data, size_t size, int type, void **region) {
  struct comm *c = comm;
  if (!data || !size || type != 1) return invalid_argument;
  c->regions++;
  *region = c;
  return success;
}

static int reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **region) {
  (void)comm, (void)data, (void)size, (void)type, (void)offset, (void)fd, (void)region;
  return internal_error;
}

static int dereg_mr(void *comm, void *region) {
  struct comm *c = comm;
  if (region != comm || c->regions == 0) return invalid_argument;
  c->regions--;
  return success;
}

// begin makes a request, or none where there is to be none now.
static int begin(struct comm *c, void *data, size_t size, int tag, void *region, void **request) {
  *request = NULL;
  if (region != c || c->regions == 0) {
    WARN("NET/Test : memory that is not registered");
    return invalid_argument;
  }
  if (c->refused++ < c->busy) return success;
  c->refused = 0;
  struct request *r = &c->requests[c->begun % max_requests];
  if (r->used || (breaks("few") && c->begun - c->moved >= 16)) {
    WARN("NET/Test : more than %d requests", max_requests);
    return internal_error;
  }
  *r = (struct request){.comm = c, .used = 1, .tag = tag, .data = data, .size = size, .number = c->begun++};
  if (!c->receives) r->frame = (struct frame){(uint32_t)size, (uint32_t)tag};
  *request = r;
  return success;
}

static int do_isend(void *comm, void *data, size_t size, int tag, void *region, void **request) {
  return begin(comm, data, size, tag, region, request);
}

static int do_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **request) {
  if (n != 1) return invalid_argument;
  return begin(comm, data[0], sizes[0], tags[0], regions[0], request);
}

// part moves bytes of a piece that begins at offset from of what the request
// has to move. It returns 1 when the piece is through, 0 when not, or minus a
// result.
static int part(struct comm *c, struct request *r, char *p, size_t from, size_t n) {
  while (r->off < from + n) {
    size_t left = from + n - r->off;
    if ((long)left > c->partial) left = (size_t)c->partial;
    char *at = p + (r->off - from);
    ssize_t got = c->receives ? recv(c->fd, at, left, 0) : send(c->fd, at, left, MSG_NOSIGNAL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0 && setting("ASSAY_TEST_NET_DEAF", 0)) return 0;
    if (got <= 0) {
      WARN("NET/Test : %s", got ? strerror(errno) : "the peer has closed the connection");
      return -remote_error;
    }
    r->off += (size_t)got;
    if (c->partial < 1L << 40) return r->off == from + n; // the rest another time
  }
  return 1;
}

// move goes on with the oldest requests.
static int move(struct comm *c) {
  while (c->moved < c->begun) {
    struct request *r = &c->requests[c->moved % max_requests];
    int state = part(c, r, (char *)&r->frame, 0, sizeof r->frame);
    if (state <= 0) return -state;
    if (c->receives && (r->frame.length > r->size || (int)r->frame.tag != r->tag)) {
      WARN("NET/Test : a message of %u bytes, tag %u, for a receive of %zu, tag %d", r->frame.length, r->frame.tag, r->size, r->tag);
      return invalid_argument;
    }
    state = part(c, r, r->data, sizeof r->frame, r->frame.length);
    if (state <= 0) return -state;
    c->moved++;
    if (c->receives && breaks("behind") && r->frame.length < r->size) r->data[r->frame.length] ^= 1;
    if (c->receives && breaks("bytes") && r->frame.length > 1000) r->data[1000] ^= 1;
  }
  return success;
}

static int do_test(void *request, int *done, int *sizes) {
  struct request *r = request;
  struct comm *c = r->comm;
  *done = 0;
  if (!r->used) {
    WARN("NET/Test : test of a request that is done");
    return invalid_argument;
  }
  if (c->fail && --c->fail == 0) {
    WARN("NET/Test : told to fail");
    return system_error;
  }
  if (r->number >= c->moved) {
    int result = move(c);
    if (result && r->number >= c->moved) return result;
  }
  if (r->number < c->moved) {
    *done = 1;
    r->used = 0;
    if (sizes) *sizes = (int)r->frame.length + breaks("length");
  }
  return success;
}

static int do_iflush(void *comm, int n, void **data, int *sizes, void **regions, void **request) {
  (void)comm, (void)n, (void)data, (void)sizes, (void)regions;
  *request = NULL;
  return success;
}

static int close_comm(void *comm) {
  struct comm *c = comm;
  int under_way = 0;
  for (int i = 0; i < max_requests; i++) under_way += c->requests[i].used;
  if ((under_way || c->regions) && setting("ASSAY_TEST_NET_STRICT", 0)) {
    fprintf(stderr, "closing a %s with %d requests under way and %d regions\n", c->receives ? "receiver" : "sender", under_way, c->regions);
    abort();
  }
  close(c->fd);
  free(c);
  return success;
}

static int close_listener(void *listener) {
  struct listener *l = listener;
  close(l->fd);
  free(l);
  return success;
}

// The tables, by version.
#ifndef ONLY
#define ONLY 0
#endif
#define HAS(v) (ONLY == 0 || ONLY == v)
#define PROPERTIES_HEAD(...)                                                               \
  char *name, *pciPath;                                                                    \
  uint64_t guid;                                                                           \
  int ptrSupport, regIsGlobal __VA_ARGS__, speed, port;                                    \
  float latency;                                                                           \
  int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
#define COMMON                                                                             \
  .name = (char *)(device ? "test1" : "test0"), .pciPath = NULL, .guid = (uint64_t)device, \
  .ptrSupport = 1, .speed = breaks("speed") ? 0 : 10000, .port = 1, .latency = 5, .maxComms = 1 << 16, .maxRecvs = 1
#define LATER .parts = 1, .part = {device}, .maxP2pBytes = 1 << 30, .maxCollBytes = 1 << 30
struct props8 {
  PROPERTIES_HEAD()
};
struct props9 {
  PROPERTIES_HEAD(, forceFlush)
  int parts, part[4];
  size_t maxP2pBytes, maxCollBytes;
};
struct props11 {
  PROPERTIES_HEAD(, forceFlush)
  int parts, part[4];
  size_t maxP2pBytes, maxCollBytes;
  int maxMultiRequestSize;
};
struct props12 {
  PROPERTIES_HEAD(, forceFlush)
  int parts, part[8];
  size_t maxP2pBytes, maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId, planeId;
};
#define BAD (device < 0 || device >= setting("ASSAY_TEST_NET_DEVICES", 2))
// Unused ones are of versions that are not compiled.
#define MAYBE __attribute__((unused)) static
MAYBE int props8(int device, struct props8 *p) { return BAD ? invalid_argument : (*p = (struct props8){COMMON}, success); }
MAYBE int props9(int device, struct props9 *p) { return BAD ? invalid_argument : (*p = (struct props9){COMMON, LATER}, success); }
MAYBE int props11(int device, struct props11 *p) {
  return BAD ? invalid_argument : (*p = (struct props11){COMMON, LATER, .maxMultiRequestSize = 1}, success);
}
MAYBE int props12(int device, struct props12 *p) {
  return BAD ? invalid_argument : (*p = (struct props12){COMMON, LATER, .maxMultiRequestSize = 1, .railId = -1, .planeId = -1}, success);
}

MAYBE int connect8(int device, void *handle, void **comm, void **offload) { return (void)offload, do_connect(device, handle, comm); }
MAYBE int connect10(int device, const int *config, void *handle, void **comm, void **offload) {
  if (!config || *config != -1) return invalid_argument;
  return (void)offload, do_connect(device, handle, comm);
}
MAYBE int isend8(void *comm, void *data, int size, int tag, void *region, void **request) { return do_isend(comm, data, (size_t)size, tag, region, request); }
MAYBE int isend10(void *comm, void *data, size_t size, int tag, void *region, void *event, void **request) {
  return (void)event, do_isend(comm, data, size, tag, region, request);
}
MAYBE int irecv8(void *comm, int n, void **data, int *sizes, int *tags, void **regions, void **request) {
  size_t size = (size_t)sizes[0];
  return do_irecv(comm, n, data, &size, tags, regions, request);
}
MAYBE int irecv10(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **events, void **request) {
  return (void)events, do_irecv(comm, n, data, sizes, tags, regions, request);
}
MAYBE int init10(logger_t log, void *profiler) { return profiler ? init_all(log) : invalid_argument; }

// From version 11 on there is a context for each communicator.
#define CONTEXT 0x11c0
struct context {
  int sign;
  uint64_t comm;
};
MAYBE int init11(void **context, uint64_t comm, const int *config, logger_t log, void *profiler) {
  if (!profiler || !config || *config != -1) return invalid_argument;
  struct context *c = calloc(1, sizeof *c);
  *c = (struct context){CONTEXT, comm};
  *context = c;
  return init_all(log);
}
static int genuine(const struct context *c) { return c && c->sign == CONTEXT; }
MAYBE int listen11(void *context, int device, void *handle, void **listener) {
  return genuine(context) ? do_listen(device, handle, listener) : invalid_argument;
}
MAYBE int connect11(void *context, int device, void *handle, void **comm, void **offload) {
  return (void)offload, genuine(context) ? do_connect(device, handle, comm) : invalid_argument;
}
MAYBE int finalize11(void *context) {
  if (!genuine(context)) return invalid_argument;
  free(context);
  return success;
}

// A table is a row of pointers behind the name.
typedef void (*any)(void);
#define F(f) (any)(f)
#define MIDDLE F(do_accept), F(reg_mr), F(reg_mr_dmabuf), F(dereg_mr)
#define END F(do_iflush), F(do_test), F(close_comm), F(close_comm), F(close_listener), NULL, NULL
struct table {
  const char *name;
  any calls[22];
};
#if HAS(8)
const struct table ncclNetPlugin_v8 = {NAME, {F(init_all), F(devices), F(props8), F(do_listen), F(connect8), MIDDLE, F(isend8), F(irecv8), END}};
#endif
#if ONLY == 9
const struct table ncclNetPlugin_v9 = {NAME, {F(init_all), F(devices), F(props9), F(do_listen), F(connect8), MIDDLE, F(do_isend), F(do_irecv), END, NULL}};
#endif
#if ONLY == 10
const struct table ncclNetPlugin_v10 = {NAME, {F(init10), F(devices), F(props9), F(do_listen), F(connect10), MIDDLE, F(isend10), F(irecv10), END, NULL}};
#endif
#if ONLY == 11
const struct table ncclNetPlugin_v11 = {NAME, {F(init11), F(devices), F(props11), F(listen11), F(connect11), MIDDLE, F(isend10), F(irecv10), END, NULL, F(finalize11), NULL}};
#endif
#if HAS(12)
const struct table ncclNetPlugin_v12 = {NAME, {F(init11), F(devices), F(props12), F(listen11), F(connect11), MIDDLE, F(isend10), F(irecv10), END, NULL, F(finalize11), NULL}};
#endif

#include "collnet.c"
