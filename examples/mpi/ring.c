/* Passes a token once around all ranks, then sums one vector over them, and
 * checks both against what they must be. Exit status 0 means that MPI in this
 * image works on these hosts; anything else ends every rank.
 *
 *	mpirun -np 4 ring [doubles]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void wrong(const char *what, long got, long want)
{
	fprintf(stderr, "ring: %s is %ld; want %ld\n", what, got, want);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rank 0 starts the token at 0, and every rank adds its number to it. */
static long token(int rank, int size)
{
	long sum = 0;
	int left = (rank + size - 1) % size, right = (rank + 1) % size;

	if (size == 1)
		return 0;
	if (rank > 0)
		MPI_Recv(&sum, 1, MPI_LONG, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	sum += rank;
	MPI_Send(&sum, 1, MPI_LONG, right, 0, MPI_COMM_WORLD);
	if (rank == 0)
		MPI_Recv(&sum, 1, MPI_LONG, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return sum;
}

/* Element i is rank + i mod 1000 on each rank: small integers, whose sum a
 * double holds exactly. */
static double allreduce(int rank, int size, int n)
{
	double *v = malloc(n * sizeof *v), start, seconds;
	long ranks = (long)size * (size - 1) / 2;

	if (v == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < n; i++)
		v[i] = rank + i % 1000;
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	seconds = MPI_Wtime() - start;
	for (int i = 0; i < n; i++)
		if (v[i] != ranks + (double)size * (i % 1000))
			wrong("an element of the sum", (long)v[i], ranks + (long)size * (i % 1000));
	free(v);
	return seconds;
}

int main(int argc, char **argv)
{
	int rank, size, n;
	long sum;
	double seconds;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	n = argc > 1 ? atoi(argv[1]) : 1 << 20;
	if (n < 1) {
		if (rank == 0)
			fprintf(stderr, "usage: ring [doubles]\n");
		MPI_Finalize();
		return 2;
	}
	sum = token(rank, size);
	if (rank == 0 && sum != (long)size * (size - 1) / 2)
		wrong("the token", sum, (long)size * (size - 1) / 2);
	seconds = allreduce(rank, size, n);
	if (rank == 0)
		printf("ring: %d ranks, token %ld, sum of %d doubles in %.3f ms: correct\n", size, sum, n, seconds * 1e3);
	MPI_Finalize();
	return 0;
}
