// The second table of the test plugin: a network that reduces. Heads are a star
// around the first one, which does the work. Included by plugin.c.
//
//	ASSAY_TEST_COLLNET_DEVICES=n  how many devices there are (1)
//	ASSAY_TEST_COLLNET_CONNECT=n  connect returns n (0)
//	ASSAY_TEST_COLLNET_BUSY=n     a collective says n times of n+1: not now (0)
//	ASSAY_TEST_COLLNET_FAIL=n     the nth test of a head fails (never)
//	ASSAY_TEST_COLLNET_DEAF=1     a lost head is not noticed: requests are never done
//	ASSAY_TEST_COLLNET_BREAK=rule breaks the interface: sum, few, null or supports
//
// connect blocks until all heads have called it. Of ASSAY_TEST_NET_… it heeds
// PARTIAL and STRICT. Compiled with -DALLREDUCE_ONLY it has no other collective.

enum { most_heads = 64, most_regions = 8 };

struct coll_frame { // before each head's data
  uint32_t kind, type, op, size;
};

struct coll_request {
  struct group *group;
  int used;
  struct coll_frame frame;
  char *from, *to;
  size_t result; // its size
  uint64_t number;
};

struct group {
  int n, rank;
  int fd[most_heads];      // at the center of the others, else [0] of the center
  uint64_t begun, sent, done;
  long busy, partial, fail, refused;
  struct coll_request requests[max_requests];
  struct {
    char *at;
    size_t size;
  } regions[most_regions];
  size_t in, out;          // bytes that have passed of the requests in turn, but for the center
  // At the center, of the one request in turn:
  char *room;              // what heads gave, then what they get
  int handing_out;
  int through[most_heads]; // collected, or handed out
  size_t at[most_heads];
  struct coll_frame frames[most_heads];
};

static int coll_breaks(const char *rule) {
  const char *s = getenv("ASSAY_TEST_COLLNET_BREAK");
  return s && !strcmp(s, rule);
}

static int coll_devices(int *n) {
  *n = (int)setting("ASSAY_TEST_COLLNET_DEVICES", 1);
  return success;
}

static const size_t element[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static int coll_supports(int type, int op, int *supported) {
  *supported = type >= 2 && type <= 8 && type != 6 && (op == 0 || op == 2 || op == 3);
  if (coll_breaks("supports")) *supported = 2;
  return success;
}

static int coll_listen(int device, void *handle, void **listener) {
  (void)device;
  int result = do_listen(device, handle, listener);
  if (result) return result;
  struct listener *l = *listener;
  listen(l->fd, most_heads); // do_listen expects one
  return fcntl(l->fd, F_SETFL, 0) ? system_error : success;
}

// whole moves n bytes on a socket that blocks.
static int whole(int fd, void *p, size_t n, int in) {
  for (size_t at = 0; at < n;) {
    ssize_t got = in ? recv(fd, (char *)p + at, n - at, 0) : send(fd, (char *)p + at, n - at, MSG_NOSIGNAL);
    if (got <= 0) return remote_error;
    at += (size_t)got;
  }
  return success;
}

static int coll_connect(void **handles, int n, int rank, void *listener, void **comm) {
  long result = setting("ASSAY_TEST_COLLNET_CONNECT", 0);
  if (result) return (int)result;
  if (n > most_heads || rank < 0 || rank >= n) return invalid_argument;
  if (coll_breaks("null")) return success;
  struct group *g = calloc(1, sizeof *g);
  g->n = n, g->rank = rank;
  g->busy = setting("ASSAY_TEST_COLLNET_BUSY", 0);
  g->partial = setting("ASSAY_TEST_NET_PARTIAL", 1L << 40);
  g->fail = setting("ASSAY_TEST_COLLNET_FAIL", 0);
  if (rank == 0) {
    struct listener *l = listener;
    for (int i = 1; i < n; i++) {
      int32_t who;
      int fd = accept(l->fd, NULL, NULL);
      if (fd < 0 || whole(fd, &who, sizeof who, 1) || who < 1 || who >= n) return system_error;
      g->fd[who] = fd;
      if (set_nonblocking(fd)) return system_error;
    }
  } else {
    struct handle *h = handles[0];
    int32_t who = rank;
    g->fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (g->fd[0] < 0 || connect(g->fd[0], (struct sockaddr *)&h->at, sizeof h->at) || whole(g->fd[0], &who, sizeof who, 0)) return system_error;
    if (set_nonblocking(g->fd[0])) return system_error;
  }
  *comm = g;
  return success;
}

static int coll_reg(void *comm, void *data, size_t size, int type, void **region) {
  struct group *g = comm;
  if (!data || !size || type != 1) return invalid_argument;
  for (int i = 0; i < most_regions; i++) {
    if (g->regions[i].at) continue;
    g->regions[i].at = data, g->regions[i].size = size;
    *region = &g->regions[i];
    return success;
  }
  return internal_error;
}

static int coll_dereg(void *comm, void *region) {
  struct group *g = comm;
  for (int i = 0; i < most_regions; i++) {
    if (region != &g->regions[i] || !g->regions[i].at) continue;
    g->regions[i].at = NULL;
    return success;
  }
  return invalid_argument;
}

// holds says whether memory lies within the region.
static int holds(struct group *g, void *region, void *data, size_t size) {
  for (int i = 0; i < most_regions; i++) {
    char *at = g->regions[i].at;
    if (region == &g->regions[i] && at) return (char *)data >= at && (char *)data + size <= at + g->regions[i].size;
  }
  return 0;
}

// coll_move moves bytes of two pieces, a frame and what follows. It returns 1
// when both are through, 0 when not, or minus a result.
static int coll_move(struct group *g, int fd, int in, size_t *at, void *frame, size_t first, char *data, size_t size) {
  while (*at < first + size) {
    char *p = *at < first ? (char *)frame + *at : data + (*at - first);
    size_t left = *at < first ? first - *at : first + size - *at;
    if ((long)left > g->partial) left = (size_t)g->partial;
    ssize_t got = in ? recv(fd, p, left, 0) : send(fd, p, left, MSG_NOSIGNAL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0 && setting("ASSAY_TEST_COLLNET_DEAF", 0)) return 0;
    if (got <= 0) {
      WARN("COLL/Test : %s", got ? strerror(errno) : "a head has closed the connection");
      return -remote_error;
    }
    *at += (size_t)got;
  }
  *at = 0;
  return 1;
}

#define EACH(type)                                                                          \
  for (size_t i = 0; i < size / sizeof(type); i++) {                                        \
    type a, b;                                                                              \
    memcpy(&a, to + i * sizeof a, sizeof a);                                                \
    memcpy(&b, from + i * sizeof b, sizeof b);                                              \
    a = op == 0 ? (type)(a + b) : op == 2 ? (a > b ? a : b) : (a < b ? a : b);              \
    memcpy(to + i * sizeof a, &a, sizeof a);                                                \
  }                                                                                         \
  break;

// combine reduces from into to.
static void combine(int type, int op, char *to, const char *from, size_t size) {
  switch (type) {
  case 2: EACH(int32_t)
  case 3: EACH(uint32_t)
  case 4: EACH(int64_t)
  case 5: EACH(uint64_t)
  case 7: EACH(float)
  case 8: EACH(double)
  }
}

enum { allreduce, allgather, reducescatter };

// collect takes what the other heads give. It returns as coll_move.
static int collect(struct group *g, struct coll_request *r) {
  size_t size = r->frame.size;
  if (!g->room) memcpy(g->room = malloc(size * (size_t)g->n + 1), r->from, size);
  int all = 1;
  for (int i = 1; i < g->n; i++) {
    if (g->through[i]) continue;
    int state = coll_move(g, g->fd[i], 1, &g->at[i], &g->frames[i], sizeof r->frame, g->room + (size_t)i * size, size);
    if (state < 0) return state;
    if ((state == 1 || g->at[i] >= sizeof r->frame) && memcmp(&g->frames[i], &r->frame, sizeof r->frame)) {
      WARN("COLL/Test : heads begin different collectives");
      return -invalid_argument;
    }
    g->through[i] = state;
    all &= state;
  }
  return all;
}

// hand_out gives the other heads their results. It returns as coll_move.
static int hand_out(struct group *g, struct coll_request *r) {
  int all = 1;
  for (int i = 1; i < g->n; i++) {
    if (g->through[i]) continue;
    char *part = g->room + (r->frame.kind == reducescatter ? (size_t)i * r->result : 0);
    int state = coll_move(g, g->fd[i], 0, &g->at[i], NULL, 0, part, r->result);
    if (state < 0) return state;
    g->through[i] = state;
    all &= state;
  }
  return all;
}

static void turn(struct group *g, int handing_out) {
  g->handing_out = handing_out;
  memset(g->through, 0, sizeof g->through);
}

// center goes on with the requests, one after the other.
static int center(struct group *g) {
  while (g->done < g->begun) {
    struct coll_request *r = &g->requests[g->done % max_requests];
    if (!g->handing_out) {
      int state = collect(g, r);
      if (state <= 0) return -state;
      for (int i = 1; i < g->n && r->frame.kind != allgather; i++)
        combine((int)r->frame.type, (int)r->frame.op, g->room, g->room + (size_t)i * r->frame.size, r->frame.size);
      if (coll_breaks("sum")) g->room[0] ^= 1;
      turn(g, 1);
    }
    int state = hand_out(g, r);
    if (state <= 0) return -state;
    memcpy(r->to, g->room, r->result);
    free(g->room);
    g->room = NULL;
    turn(g, 0);
    g->done++;
  }
  return success;
}

// edge goes on with the requests of any other head.
static int edge(struct group *g) {
  for (; g->sent < g->begun; g->sent++) {
    struct coll_request *r = &g->requests[g->sent % max_requests];
    int state = coll_move(g, g->fd[0], 0, &g->out, &r->frame, sizeof r->frame, r->from, r->frame.size);
    if (state < 0) return -state;
    if (!state) break;
  }
  for (; g->done < g->sent; g->done++) {
    struct coll_request *r = &g->requests[g->done % max_requests];
    int state = coll_move(g, g->fd[0], 1, &g->in, NULL, 0, r->to, r->result);
    if (state <= 0) return -state;
  }
  return success;
}

// coll_begin makes a request, or none where there is to be none now.
static int coll_begin(struct group *g, struct coll_frame frame, void *from, void *from_region, void *to, void *to_region, size_t result, void **request) {
  *request = NULL;
  if (!holds(g, from_region, from, frame.size) || !holds(g, to_region, to, result)) {
    WARN("COLL/Test : memory that is not registered");
    return invalid_argument;
  }
  int supported = 1;
  if (frame.kind != allgather) coll_supports((int)frame.type, (int)frame.op, &supported);
  if (!supported) return invalid_argument;
  if (g->refused++ < g->busy) return success;
  g->refused = 0;
  struct coll_request *r = &g->requests[g->begun % max_requests];
  if (r->used || (coll_breaks("few") && g->begun - g->done >= 4)) {
    WARN("COLL/Test : more than %d requests", max_requests);
    return internal_error;
  }
  *r = (struct coll_request){.group = g, .used = 1, .frame = frame, .from = from, .to = to, .result = result, .number = g->begun++};
  *request = r;
  return success;
}

static int coll_allreduce(void *comm, void *from, void *to, size_t count, int type, int op, void *from_region, void *to_region, void **request) {
  if (type < 0 || type > 9) return invalid_argument;
  size_t size = count * element[type];
  return coll_begin(comm, (struct coll_frame){allreduce, (uint32_t)type, (uint32_t)op, (uint32_t)size}, from, from_region, to, to_region, size, request);
}

struct part8 {
  void *region, *address;
  uint32_t size;
};

struct part9 {
  void *region, *address;
  size_t size;
};

// Windows are wholes here.
static int coll_allgather(void *comm, void *from, int n, struct part9 *to, size_t each, size_t window, size_t size, void *region, void **request) {
  struct group *g = comm;
  if (n != 1 || window != 0 || size != each * (size_t)g->n || to->size != size) return invalid_argument;
  return coll_begin(g, (struct coll_frame){allgather, 0, 0, (uint32_t)each}, from, region, to->address, to->region, size, request);
}

static int coll_reducescatter(void *comm, int n, struct part9 *from, void *to, size_t each, size_t window, size_t size, int type, int op, void *region, void **request) {
  struct group *g = comm;
  if (n != 1 || window != 0 || size != each * (size_t)g->n || from->size != size) return invalid_argument;
  return coll_begin(g, (struct coll_frame){reducescatter, (uint32_t)type, (uint32_t)op, (uint32_t)size}, from->address, from->region, to, region, each, request);
}

static int coll_test(void *request, int *done, int *size) {
  struct coll_request *r = request;
  struct group *g = r->group;
  *done = 0;
  if (!r->used) {
    WARN("COLL/Test : test of a request that is done");
    return invalid_argument;
  }
  if (g->fail && --g->fail == 0) {
    WARN("COLL/Test : told to fail");
    return system_error;
  }
  if (r->number >= g->done) {
    int result = g->rank == 0 ? center(g) : edge(g);
    if (result && r->number >= g->done) return result;
  }
  if (r->number < g->done) {
    *done = 1;
    r->used = 0;
    if (size) *size = (int)r->result;
  }
  return success;
}

static int coll_close(void *comm) {
  struct group *g = comm;
  int left = 0;
  for (int i = 0; i < max_requests; i++) left += g->requests[i].used;
  for (int i = 0; i < most_regions; i++) left += g->regions[i].at != NULL;
  if (left && setting("ASSAY_TEST_NET_STRICT", 0)) {
    fprintf(stderr, "closing a head with %d requests and regions\n", left);
    abort();
  }
  for (int i = 0; i < g->n; i++)
    if (g->fd[i]) close(g->fd[i]);
  free(g->room);
  free(g);
  return success;
}

MAYBE int coll_allreduce8(void *comm, void *from, void *to, int count, int type, int op, void *from_region, void *to_region, void **request) {
  return coll_allreduce(comm, from, to, (size_t)count, type, op, from_region, to_region, request);
}
MAYBE int coll_allgather8(void *comm, void *from, int n, struct part8 *to, size_t each, size_t window, size_t size, void *region, void **request) {
  struct part9 part = {to->region, to->address, to->size};
  return coll_allgather(comm, from, n, &part, each, window, size, region, request);
}
MAYBE int coll_reducescatter8(void *comm, int n, struct part8 *from, void *to, size_t each, size_t window, size_t size, int type, int op, void *region, void **request) {
  struct part9 part = {from->region, from->address, from->size};
  return coll_reducescatter(comm, n, &part, to, each, window, size, type, op, region, request);
}
MAYBE int coll_init8(logger_t log) { return logger = log, success; }
MAYBE int coll_init11(void **context, uint64_t comm, logger_t log) {
  struct context *c = calloc(1, sizeof *c);
  *c = (struct context){CONTEXT, comm};
  *context = c;
  return coll_init8(log);
}
MAYBE int coll_listen11(void *context, int device, void *handle, void **listener) {
  return genuine(context) ? coll_listen(device, handle, listener) : invalid_argument;
}

#ifdef ALLREDUCE_ONLY
#define OTHERS8 NULL, NULL
#define OTHERS9 NULL, NULL
#else
#define OTHERS8 F(coll_allgather8), F(coll_reducescatter8)
#define OTHERS9 F(coll_allgather), F(coll_reducescatter)
#endif
#define COLL_MIDDLE F(coll_connect), F(coll_supports), F(coll_reg), F(reg_mr_dmabuf), F(coll_dereg)
#define COLL_END NULL, F(coll_test), F(coll_close), F(close_listener)
#define COLL_NAME NAME " reducing"
#if HAS(8)
const struct table ncclCollNetPlugin_v8 = {COLL_NAME, {F(coll_init8), F(coll_devices), F(props8), F(coll_listen), COLL_MIDDLE, F(coll_allreduce8), OTHERS8, COLL_END}};
#endif
#if ONLY == 9
const struct table ncclCollNetPlugin_v9 = {COLL_NAME, {F(coll_init8), F(coll_devices), F(props9), F(coll_listen), COLL_MIDDLE, F(coll_allreduce), OTHERS9, COLL_END, NULL}};
#endif
#if ONLY == 10
const struct table ncclCollNetPlugin_v10 = {COLL_NAME, {F(coll_init8), F(coll_devices), F(props9), F(coll_listen), COLL_MIDDLE, F(coll_allreduce), OTHERS9, COLL_END, NULL}};
#endif
#if ONLY == 11
const struct table ncclCollNetPlugin_v11 = {COLL_NAME, {F(coll_init11), F(coll_devices), F(props11), F(coll_listen11), COLL_MIDDLE, F(coll_allreduce), OTHERS9, COLL_END, NULL, F(finalize11)}};
#endif
#if HAS(12)
const struct table ncclCollNetPlugin_v12 = {COLL_NAME, {F(coll_init11), F(coll_devices), F(props12), F(coll_listen11), COLL_MIDDLE, F(coll_allreduce), OTHERS9, COLL_END, NULL, F(finalize11)}};
#endif
