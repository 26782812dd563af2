#include <cuda.h>

// A launch, ready to go: all that the driver reads is here, in C's memory, so a
// call passes one pointer.
typedef struct assay_launch {
	CUlaunchConfig config;
	CUlaunchAttribute attributes[4];
	CUcontext context;
	CUfunction function;
	struct assay_launch *next; // of those that assay_run_all runs
	void **params;             // where the parameters are
} assay_launch;

// What assay_run_all returns.
typedef struct {
	CUresult code;
	int done; // launches that succeeded
} assay_outcome;

static inline CUresult assay_run(assay_launch *l) {
	return cuLaunchKernelEx(&l->config, l->function, l->params, NULL);
}

// assay_run_all runs a list of launches, each in its context, until one fails.
// The thread's current context is the same afterwards.
static inline assay_outcome assay_run_all(assay_launch *l) {
	assay_outcome o = {CUDA_SUCCESS, 0};
	CUcontext before, current;
	o.code = cuCtxGetCurrent(&before);
	current = before;
	for (; l != NULL && o.code == CUDA_SUCCESS; l = l->next) {
		if (l->context != current) {
			o.code = cuCtxSetCurrent(l->context);
			if (o.code != CUDA_SUCCESS)
				break;
			current = l->context;
		}
		o.code = assay_run(l);
		o.done += o.code == CUDA_SUCCESS;
	}
	if (current != before)
		cuCtxSetCurrent(before);
	return o;
}
