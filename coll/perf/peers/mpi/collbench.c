// collbench times MPI's collectives on command, so that they can be measured
// in turn with another engine's: each rank waits in read(2), not in MPI, for
// lines such as
//
//	all_reduce BYTES WARMUP ITERATIONS
//
// on DIR/cmd.RANK and writes the seconds that the iterations took to
// DIR/out.RANK. "quit" ends it. Floats, sum, root 0; BYTES as in nccl-tests:
// of the whole vector for all_reduce, broadcast and reduce, of all ranks' parts
// together for the others.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *send_buf, *recv_buf;
static int rank, ranks;

static void run(const char *op, size_t bytes) {
	int count = (int)(bytes / sizeof(float)), part = count / ranks;
	if (!strcmp(op, "all_reduce"))
		MPI_Allreduce(send_buf, recv_buf, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (!strcmp(op, "broadcast"))
		MPI_Bcast(recv_buf, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
	else if (!strcmp(op, "reduce"))
		MPI_Reduce(send_buf, recv_buf, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
	else if (!strcmp(op, "all_gather"))
		MPI_Allgather(send_buf, part, MPI_FLOAT, recv_buf, part, MPI_FLOAT, MPI_COMM_WORLD);
	else if (!strcmp(op, "reduce_scatter"))
		MPI_Reduce_scatter_block(send_buf, recv_buf, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (!strcmp(op, "alltoall"))
		MPI_Alltoall(send_buf, part, MPI_FLOAT, recv_buf, part, MPI_FLOAT, MPI_COMM_WORLD);
	else {
		fprintf(stderr, "collbench: there is no operation %s\n", op);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
}

static FILE *channel(const char *dir, const char *kind, const char *mode) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%s.%d", dir, kind, rank);
	FILE *f = fopen(path, mode);
	if (!f) {
		perror(path);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	return f;
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 3) {
		fprintf(stderr, "usage: collbench DIR MAXBYTES\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	size_t max = strtoull(argv[2], NULL, 0);
	send_buf = malloc(max);
	recv_buf = malloc(max);
	for (size_t i = 0; i < max / sizeof(float); i++) {
		send_buf[i] = 1;
		recv_buf[i] = 0;
	}
	FILE *in = channel(argv[1], "cmd", "r"), *out = channel(argv[1], "out", "w");
	char op[32];
	size_t bytes;
	int warmup, iterations;
	while (fscanf(in, "%31s", op) == 1 && strcmp(op, "quit") && fscanf(in, "%zu %d %d", &bytes, &warmup, &iterations) == 3) {
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < warmup; i++)
			run(op, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		for (int i = 0; i < iterations; i++)
			run(op, bytes);
		t = MPI_Wtime() - t;
		MPI_Barrier(MPI_COMM_WORLD);
		fprintf(out, "%.9f\n", t);
		fflush(out);
	}
	MPI_Finalize();
	return 0;
}
