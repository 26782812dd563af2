// The driver's functions are looked up by the stubs, which are named like them.

// Error codes of the driver that the stubs answer by themselves.
#define ASSAY_CU_SUCCESS 0
#define ASSAY_CU_NO_DEVICE 100
#define ASSAY_CU_NOT_SUPPORTED 801

// assay_cu_load looks for the driver and initialises it, once. It returns
// cuInit's result, or ASSAY_CU_NO_DEVICE and in *why the reason.
int assay_cu_load(const char **why);
