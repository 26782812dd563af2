/* Stand-in for aws-ofi-nccl. */
unsigned fi_version(void);
const char ncclOfiStandinVersion[] = "NET/OFI Initializing aws-ofi-nccl " VERSION;
unsigned ncclOfiStandinFabric(void) { return fi_version(); }
struct { const char *name; } ncclNetPlugin_v8 = {"Libfabric"}, ncclNetPlugin_v9 = {"Libfabric"}, ncclTunerPlugin_v3 = {"nccl_ofi_tuner"};
