/* Stand-in for GDRCopy's header. */
#ifndef GDRAPI_H
#define GDRAPI_H
#define GDR_API_MAJOR_VERSION @MAJOR@
#define GDR_API_MINOR_VERSION @MINOR@
typedef struct gdr *gdr_t;
gdr_t gdr_open(void); /* NULL where the gdrdrv device is absent */
int gdr_close(gdr_t g);
void gdr_runtime_get_version(int *major, int *minor);
#endif
