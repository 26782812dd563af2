/* Stand-in for one of HPC-X's libraries: it knows its version; a net plugin
 * also has the symbols that NCCL looks for. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#ifdef NET_PLUGIN
const char *ncclStandinPluginVersion(void) { return VERSION; }
struct { const char *name; } ncclNetPlugin_v8 = {"stand-in"}, ncclNetPlugin_v9 = {"stand-in"}, ncclCollNetPlugin_v8 = {"stand-in"};
#else
const char *JOIN(NAME, _standin_version)(void) { return VERSION; }
#ifdef USES /* another library of HPC-X */
const char *JOIN(USES, _standin_version)(void);
const char *JOIN(NAME, _standin_used)(void) { return JOIN(USES, _standin_version)(); }
#endif
#endif
