/* Stand-in for libopen-pal. */
const char *opal_standin_version(void) { return VERSION; }
