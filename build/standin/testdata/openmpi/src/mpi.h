/* Stand-in for Open MPI's header: the part of MPI that assay's tests call. */
#ifndef OMPI_MPI_H
#define OMPI_MPI_H
#ifdef __cplusplus
extern "C" {
#endif
#define OPEN_MPI 1
#define MPI_VERSION 3
#define MPI_SUBVERSION 1
#define MPI_SUCCESS 0
#define MPI_ERR_OTHER 16
#define MPI_MAX_PROCESSOR_NAME 256
#define MPI_MAX_LIBRARY_VERSION_STRING 256
typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF };
enum { MPI_BYTE, MPI_CHAR, MPI_INT, MPI_LONG, MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE };
enum { MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD };
#define MPI_LONG_LONG MPI_LONG
#define MPI_IN_PLACE ((void *)1)
#define MPI_THREAD_SINGLE 0
#define MPI_THREAD_MULTIPLE 3

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int code);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Allgather(const void *send, int sendcount, MPI_Datatype sendtype, void *recv, int recvcount, MPI_Datatype recvtype, MPI_Comm comm);
int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Get_processor_name(char *name, int *length);
int MPI_Get_library_version(char *version, int *length);
double MPI_Wtime(void);
#ifdef __cplusplus
}
#endif
#endif
