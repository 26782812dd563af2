// Tests of ranks.c: device communicators. The emulated devices' memory is the host's, so that what a
// kernel does with nccl_device.h of a release, the host does here, from the same structures.
#include <stdatomic.h>

#include "../front/device.h"

ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t *, ncclDevResourceRequirements_t *);
int ncclLLA2ACalcSlots(int, int);

// field reads from a structure.
#define FIELD(type, at, offset) (*(type *)((char *)(at) + (offset)))

// to_rank moves an address to the memory of another rank: only the upper word changes.
static char *to_rank(char *base, int rank, uint32_t stride4G) {
  union {
    char *p;
    uint32_t word[2];
  } at = {base};
  at.word[1] += (uint32_t)rank * stride4G;
  return at.p;
}

// lsa_pointer is a rank's memory of a window.
static void *lsa_pointer(ncclWindow_t w, size_t offset, int rank) { return to_rank(FIELD(char *, w, 8), rank, FIELD(uint32_t, w, 24)) + offset; }

// A seen is what a kernel finds in a device communicator of a release.
struct seen {
  int rank, ranks;
  char *base;
  uint32_t stride4G;
  ncclLsaBarrierHandle_t barrier;
  char *table;
};

static struct seen look(const char *d, unsigned version) {
  int m = version < 23000 ? 0 : 8, window = version < 23000 ? 48 : version < 23100 ? 56 : 48, barrier = version < 23000 ? 120 : version < 23100 ? 128 : 80;
  TRUE(version < 23000 || (FIELD(const unsigned, d, 0) == CONFIG_MAGIC && FIELD(const unsigned, d, 4) == version));
  return (struct seen){FIELD(const int, d, m + 12), FIELD(const int, d, m + 16), FIELD(char *const, d, window), FIELD(const uint32_t, d, window + (version < 23100 ? 16 : 8)),
                       FIELD(const ncclLsaBarrierHandle_t, d, barrier), FIELD(char *const, d, m + 24)};
}

static uint32_t *resource(const struct seen *s, uint32_t handle, int rank) { return (uint32_t *)(to_rank(s->base, rank, s->stride4G) + (size_t)handle * 128); }

// meet_at waits for all ranks at one of the barriers, as a session of a kernel does.
static void meet_at(const struct seen *s, ncclLsaBarrierHandle_t b, int index) {
  uint32_t *epoch = resource(s, b.bufHandle, s->rank) + b.nBarriers + index, next = *epoch + 1;
  for (int p = 0; p < s->ranks; p++)
    if (p != s->rank) atomic_store((_Atomic uint32_t *)(resource(s, b.bufHandle, p) + 3 * b.nBarriers + index * s->ranks + s->rank), next);
  for (int p = 0; p < s->ranks; p++)
    while (p != s->rank && atomic_load((_Atomic uint32_t *)(resource(s, b.bufHandle, s->rank) + 3 * b.nBarriers + index * s->ranks + p)) < next) usleep(100);
  *epoch = next;
}

// window_at looks an address up, as ncclFindWindow does.
static ncclWindow_t window_at(char *table, const void *address) {
  for (; table; table = FIELD(char *, table, 768))
    for (int i = 0; i < 32; i++)
      if ((uintptr_t)address - FIELD(uintptr_t, table, 24 * i) < FIELD(uintptr_t, table, 24 * i + 8)) return FIELD(ncclWindow_t, table, 24 * i + 16);
  return NULL;
}

// reduce adds the input of all ranks, a share of it on each, and stores the sums to all.
static void reduce_by_lsa(const struct seen *s, ncclWindow_t send, ncclWindow_t recv, int n, int index) {
  meet_at(s, s->barrier, index);
  for (int i = s->rank; i < n; i += s->ranks) {
    int v = 0;
    for (int p = 0; p < s->ranks; p++) v += ((int *)lsa_pointer(send, 0, p))[i];
    for (int p = 0; p < s->ranks; p++) ((int *)lsa_pointer(recv, 0, p))[i] = v;
  }
  meet_at(s, s->barrier, index);
}

static void lsa(struct rank *r) {
  static const struct {
    unsigned version;
    size_t size;
  } releases[] = {{0, 56}, {22903, 72}, {22907, 88}, {23007, 96}, {23100, 120}, {23204, 136}};
  ncclCommProperties_t props = {.size = sizeof props, .magic = CONFIG_MAGIC, .version = 23007};
  OK(ncclCommQueryProperties(r->comm, &props));
  TRUE(props.rank == r->rank && props.nRanks == ranks && props.cudaDev == r->rank % devices && !props.multimemSupport && props.ginType == 0);
  ncclDevCommRequirements_t q = {.magic = CONFIG_MAGIC};
  char d[256], more[256];
  if (!props.deviceApiSupport) {
    TRUE(props.nLsaTeams == ranks && ncclTeamLsa(r->comm).nRanks == 1);
    q.size = 96, q.version = 23007;
    TRUE(ncclDevCommCreate(r->comm, &q, d) == ncclInvalidUsage && strstr(ncclGetLastError(r->comm), "kernels reach no other rank's memory: "));
    return;
  }
  TRUE(props.nLsaTeams == 1 && ncclTeamLsa(r->comm).nRanks == ranks && ncclTeamLsa(r->comm).rank == r->rank && ncclTeamRail(r->comm).nRanks == 1);
  ncclWindow_t send, recv;
  OK(ncclCommWindowRegister(r->comm, r->send, most * sizeof(int), &send, 1));
  OK(ncclCommWindowRegister(r->comm, r->recv, most * sizeof(int), &recv, 1));
  for (unsigned i = 0; i < sizeof releases / sizeof *releases; i++) {
    unsigned version = releases[i].version;
    ncclLLA2AHandle_t slots;
    uint32_t own;
    ncclDevResourceRequirements_t list[2] = {{.bufferSize = 5000, .bufferAlign = 256, .outBufferHandle = &own}};
    OK(ncclLLA2ACreateRequirement(2, ncclLLA2ACalcSlots(8, 8), &slots, &list[1]));
    list[0].next = &list[1];
    memset(&q.first, 0, sizeof q.first);
    q.size = releases[i].size, q.version = version;
    q.first.lsaBarrierCount = 3;
    q.first.resourceRequirementsList = list;
    OK(ncclDevCommCreate(r->comm, version ? (void *)&q : &q.first, d));
    struct seen s = look(d, version);
    TRUE(s.rank == r->rank && s.ranks == ranks && s.barrier.nBarriers == 3 && own % 2 == 0);
    TRUE(window_at(s.table, (char *)r->recv + most * sizeof(int) - 1) == recv && window_at(s.table, r->send) == send && !window_at(s.table, &s));
    for (int index = 0; index < 3; index++) {
      fill(r, 5000);
      for (int round = 0; round < 3; round++) reduce_by_lsa(&s, send, recv, 5000, index);
      for (int k = 0; k < 5000; k += 7) TRUE(got(r, k) == sum(k));
      meet_at(&s, s.barrier, 0); // before the next fill
    }
    // Parts of the resource buffer are apart, zeroed, and of all ranks.
    for (int p = 0; p < ranks; p++) {
      TRUE(resource(&s, own, p)[1000] == 0);
      resource(&s, own, p)[r->rank] = 1 + r->rank;
      resource(&s, slots.bufHandle, p)[4 * (1 + 2 * (int)slots.nSlots) * 2 - 1 - r->rank] = 100 + r->rank;
    }
    meet_at(&s, s.barrier, 2);
    for (int p = 0; p < ranks; p++) TRUE((int)resource(&s, own, r->rank)[p] == 1 + p && (int)resource(&s, slots.bufHandle, r->rank)[4 * (1 + 2 * (int)slots.nSlots) * 2 - 1 - p] == 100 + p);
    // A second one, beside it.
    OK(ncclDevCommCreate(r->comm, version ? (void *)&q : &q.first, more));
    struct seen t = look(more, version);
    TRUE(t.base != s.base);
    meet_at(&t, t.barrier, 1);
    OK(ncclDevCommDestroy(r->comm, d));
    meet_at(&t, t.barrier, 1);
    void *p;
    OK(ncclGetLsaDevicePointer(recv, 40, (r->rank + 1) % ranks, &p));
    TRUE(p == lsa_pointer(recv, 40, (r->rank + 1) % ranks));
    OK(ncclGetPeerDevicePointer(recv, 40, r->rank, &p));
    TRUE(FIELD(int, p, 0) == got(r, 10));
    meet_at(&t, t.barrier, 2);
    if (i % 2) OK(ncclDevCommDestroy(r->comm, more)); // the others end with the communicator
  }
  // The communicator does its own operations, too, and windows of ordinary memory are as before.
  fill(r, 5000);
  OK(ncclAllReduce(r->send, r->recv, 5000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 5000, want_sum);
  OK(ncclCommWindowDeregister(r->comm, send));
  TRUE(ncclCommWindowDeregister(r->comm, send) == ncclInvalidArgument);
}

// lsa_single: one thread makes windows and device communicators of all ranks in a group.
static void lsa_single(struct rank *r, const ncclComm_t *all) {
  ncclWindow_t win[16];
  static char d[16][256];
  ncclDevCommRequirements_t q = {.size = 96, .magic = CONFIG_MAGIC, .version = 23007, .first = {.lsaBarrierCount = 2}};
  OK(ncclGroupStart());
  for (int i = 0; i < ranks; i++) {
    OK(ncclCommWindowRegister(all[i], r[i].recv, most * sizeof(int), &win[i], 1));
    OK(ncclDevCommCreate(all[i], &q, d[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < ranks; i++)
    for (int k = 0; k < ranks; k++) {
      struct seen s = look(d[i], 23007);
      resource(&s, 0, k)[20 + i] = 7 + i;
      ((int *)lsa_pointer(win[i], 0, k))[i] = 1000 * i + k;
    }
  for (int i = 0; i < ranks; i++) {
    struct seen s = look(d[i], 23007);
    for (int k = 0; k < ranks; k++) {
      use_device(&r[i]);
      TRUE(got(&r[i], k) == 1000 * k + i && (int)resource(&s, 0, i)[20 + k] == 7 + k);
    }
    OK(ncclDevCommDestroy(all[i], d[i]));
  }
}
