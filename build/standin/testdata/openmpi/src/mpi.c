/* Stand-in for libmpi: the ranks of one host meet in memory that orterun made.
 * Every rank has a slot there; a collective copies in, waits, and copies out. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mpi.h"
#include "shared.h"

int orte_standin_number(const char *name, int otherwise);
const char *opal_standin_version(void);

static struct { int rank, size, initialized; struct standin_shared *shared; } world = {0, 1, 0, NULL};
static const size_t width[] = {1, 1, sizeof(int), sizeof(long), sizeof(uint64_t), sizeof(float), sizeof(double)};

static char *slot(int rank) { return (char *)(world.shared + 1) + (size_t)rank * STANDIN_SLOT; }

int MPI_Init(int *argc, char ***argv) {
	(void)argc; (void)argv;
	world.rank = orte_standin_number("OMPI_COMM_WORLD_RANK", 0);
	world.size = orte_standin_number("OMPI_COMM_WORLD_SIZE", 1);
	world.initialized = 1;
	int fd = orte_standin_number("STANDIN_MPI_FD", -1);
	if (world.size == 1) return MPI_SUCCESS;
	world.shared = mmap(NULL, standin_shared_size(world.size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (world.shared != MAP_FAILED) return MPI_SUCCESS;
	fprintf(stderr, "MPI_Init: rank %d was not started by this mpirun\n", world.rank);
	exit(1);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
	*provided = required;
	return MPI_Init(argc, argv);
}

int MPI_Initialized(int *flag) { *flag = world.initialized; return MPI_SUCCESS; }
int MPI_Finalize(void) { return MPI_Barrier(MPI_COMM_WORLD); }
int MPI_Abort(MPI_Comm comm, int code) { (void)comm; _exit(code ? code : 1); }
int MPI_Comm_rank(MPI_Comm comm, int *rank) { *rank = comm == MPI_COMM_WORLD ? world.rank : 0; return MPI_SUCCESS; }
int MPI_Comm_size(MPI_Comm comm, int *size) { *size = comm == MPI_COMM_WORLD ? world.size : 1; return MPI_SUCCESS; }

static int alone(MPI_Comm comm) { return comm != MPI_COMM_WORLD || world.size == 1; }

int MPI_Barrier(MPI_Comm comm) {
	if (alone(comm)) return MPI_SUCCESS;
	int generation = atomic_load(&world.shared->generation);
	if (atomic_fetch_add(&world.shared->arrived, 1) == world.size - 1) {
		atomic_store(&world.shared->arrived, 0);
		atomic_fetch_add(&world.shared->generation, 1);
		return MPI_SUCCESS;
	}
	while (atomic_load(&world.shared->generation) == generation) sched_yield();
	return MPI_SUCCESS;
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
	size_t left = (size_t)count * width[type];
	for (char *at = buffer; !alone(comm) && left > 0;) {
		size_t n = left < STANDIN_SLOT ? left : STANDIN_SLOT;
		if (world.rank == root) memcpy(slot(root), at, n);
		MPI_Barrier(comm);
		if (world.rank != root) memcpy(at, slot(root), n);
		MPI_Barrier(comm);
		at += n;
		left -= n;
	}
	return MPI_SUCCESS;
}

int MPI_Allgather(const void *send, int sendcount, MPI_Datatype sendtype, void *recv, int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
	size_t bytes = (size_t)recvcount * width[recvtype];
	int rank = alone(comm) ? 0 : world.rank, size = alone(comm) ? 1 : world.size;
	if (send != MPI_IN_PLACE) memcpy((char *)recv + (size_t)rank * bytes, send, (size_t)sendcount * width[sendtype]);
	for (int r = 0; r < size; r++) MPI_Bcast((char *)recv + (size_t)r * bytes, recvcount, recvtype, r, comm);
	return MPI_SUCCESS;
}

#define REDUCE(T) do { \
	T *to = out, v; const T *from = in; \
	for (size_t i = 0; i < n; i++) { \
		v = from[i]; \
		to[i] = op == MPI_SUM ? to[i] + v : op == MPI_PROD ? to[i] * v : op == MPI_MAX ? (v > to[i] ? v : to[i]) : (v < to[i] ? v : to[i]); \
	} } while (0)

static void reduce(void *out, const void *in, size_t n, MPI_Datatype type, MPI_Op op) {
	switch (type) {
	case MPI_INT: REDUCE(int); break;
	case MPI_LONG: REDUCE(long); break;
	case MPI_UINT64_T: REDUCE(uint64_t); break;
	case MPI_FLOAT: REDUCE(float); break;
	case MPI_DOUBLE: REDUCE(double); break;
	default: REDUCE(signed char);
	}
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
	size_t w = width[type], left = count, most = STANDIN_SLOT / w;
	if (send != MPI_IN_PLACE) memcpy(recv, send, left * w);
	for (char *at = recv; !alone(comm) && left > 0;) {
		size_t n = left < most ? left : most;
		memcpy(slot(world.rank), at, n * w);
		MPI_Barrier(comm);
		memcpy(at, slot(0), n * w); /* the same order on every rank: the same bits */
		for (int r = 1; r < world.size; r++) reduce(at, slot(r), n, type, op);
		MPI_Barrier(comm);
		at += n * w;
		left -= n;
	}
	return MPI_SUCCESS;
}

int MPI_Get_processor_name(char *name, int *length) {
	gethostname(name, MPI_MAX_PROCESSOR_NAME);
	*length = (int)strlen(name);
	return MPI_SUCCESS;
}

int MPI_Get_library_version(char *version, int *length) {
	*length = snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "Open MPI v%s, package: assay stand-in", opal_standin_version());
	return MPI_SUCCESS;
}

double MPI_Wtime(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
