/* Stand-in for NVML's header. Not NVIDIA's file. */
#ifndef STANDIN_NVML_H
#define STANDIN_NVML_H
#ifdef __cplusplus
extern "C" {
#endif
typedef int nvmlReturn_t;
#define NVML_SUCCESS 0
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
#ifdef __cplusplus
}
#endif
#endif
