/* Stand-in for one of Open MPI's plugins: what counts is what it links. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
int JOIN(mca_standin_, NAME) = 1;
