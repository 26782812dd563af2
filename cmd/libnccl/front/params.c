// Parameters: the variables of docs/knobs.md, with what they say now.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

extern char **environ;

// A handle is a name that stays.
struct ncclParamHandle {
  struct ncclParamHandle *next;
  char name[];
};

// param asks for a variable by its name, or by its number where the name is NULL.
static ncclResult_t param(const char *name, int32_t number, char *full, char *value) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = load(&e);
  if (r != ncclSuccess) return r;
  r = e->assay_param(environ, name, number, full, value, text);
  return name ? said(r, text) : r; // a list has an end, which is no error
}

API(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char *key)) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct ncclParamHandle *all;
  char name[ASSAY_TEXT], value[ASSAY_TEXT];
  if (!out || !key) return fail(ncclInvalidArgument, "ncclParamBind: an argument is NULL");
  ncclResult_t r = param(key, 0, name, value);
  if (r != ncclSuccess) return r;
  pthread_mutex_lock(&lock);
  struct ncclParamHandle *h = all;
  while (h && strcmp(h->name, name)) h = h->next;
  if (!h && (h = malloc(sizeof *h + strlen(name) + 1))) {
    strcpy(h->name, name);
    h->next = all;
    all = h;
  }
  pthread_mutex_unlock(&lock);
  if (!h) return fail(ncclSystemError, "ncclParamBind: no memory");
  *out = h;
  return ncclSuccess;
}

static _Thread_local char bound[ASSAY_TEXT], named[ASSAY_TEXT]; // what the two functions returned last

API(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char **out)) {
  char name[ASSAY_TEXT];
  if (!h || !out) return fail(ncclInvalidArgument, "ncclParamGetStr: an argument is NULL");
  ncclResult_t r = param(h->name, 0, name, bound);
  if (r == ncclSuccess) *out = bound;
  return r;
}

API(ncclResult_t, ncclParamGetParameter, (const char *key, const char **value, int *valueLen)) {
  char name[ASSAY_TEXT];
  if (!key || !value || !valueLen) return fail(ncclInvalidArgument, "ncclParamGetParameter: an argument is NULL");
  ncclResult_t r = param(key, 0, name, named);
  if (r != ncclSuccess) return r;
  *value = named;
  *valueLen = strlen(named);
  return r;
}

// ncclParamGet copies the value's text: there is no other form of it.
API(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len)) {
  char name[ASSAY_TEXT], value[ASSAY_TEXT];
  if (!h || !out || !len) return fail(ncclInvalidArgument, "ncclParamGet: an argument is NULL");
  ncclResult_t r = param(h->name, 0, name, value);
  if (r != ncclSuccess) return r;
  *len = strlen(value);
  if (*len > maxLen) return fail(ncclInvalidArgument, "ncclParamGet: %s has %d bytes, and there is room for %d", name, *len, maxLen);
  memcpy(out, value, *len);
  return ncclSuccess;
}

// number is a value between two limits. Those of 64 bits without a sign end at the
// largest with one: no variable has more.
static ncclResult_t number(const char *what, ncclParamHandle_t h, long long least, long long most, long long *n) {
  char name[ASSAY_TEXT], value[ASSAY_TEXT], *end;
  if (!h) return fail(ncclInvalidArgument, "%s: the handle is NULL", what);
  ncclResult_t r = param(h->name, 0, name, value);
  if (r != ncclSuccess) return r;
  errno = 0;
  *n = strtoll(value, &end, 0);
  if (end == value || *end || errno || *n < least || *n > most) return fail(ncclInvalidArgument, "%s: %s is %.100s", what, name, value);
  return ncclSuccess;
}

#define TYPED(suffix, type, least, most)                                                                  \
  API(ncclResult_t, ncclParamGet##suffix, (ncclParamHandle_t h, type * out)) {                            \
    long long n;                                                                                          \
    if (!out) return fail(ncclInvalidArgument, "ncclParamGet" #suffix ": out is NULL");                   \
    ncclResult_t r = number("ncclParamGet" #suffix, h, least, most, &n);                                  \
    if (r == ncclSuccess) *out = (type)n;                                                                 \
    return r;                                                                                             \
  }

TYPED(I8, int8_t, INT8_MIN, INT8_MAX)
TYPED(I16, int16_t, INT16_MIN, INT16_MAX)
TYPED(I32, int32_t, INT32_MIN, INT32_MAX)
TYPED(I64, int64_t, INT64_MIN, INT64_MAX)
TYPED(U8, uint8_t, 0, UINT8_MAX)
TYPED(U16, uint16_t, 0, UINT16_MAX)
TYPED(U32, uint32_t, 0, UINT32_MAX)
TYPED(U64, uint64_t, 0, INT64_MAX)

API(ncclResult_t, ncclParamGetAllParameterKeys, (const char ***table, int *tableLen)) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const char **all; // made once: the list does not change
  static int count;
  char name[ASSAY_TEXT], value[ASSAY_TEXT];
  if (!table || !tableLen) return fail(ncclInvalidArgument, "ncclParamGetAllParameterKeys: an argument is NULL");
  ncclResult_t r = ncclSuccess;
  pthread_mutex_lock(&lock);
  if (!all) {
    int n = 0;
    while (param(NULL, n, name, value) == ncclSuccess) n++;
    all = calloc(n + 1, sizeof *all);
    for (int i = 0; all && i < n; i++) {
      param(NULL, i, name, value);
      if (!(all[i] = strdup(name))) n = i;
    }
    count = n;
  }
  if (!all || count == 0) r = fail(ncclSystemError, "ncclParamGetAllParameterKeys: no memory, or no engine");
  *table = all;
  *tableLen = count;
  pthread_mutex_unlock(&lock);
  return r;
}

API(void, ncclParamDumpAll, (void)) {
  char name[ASSAY_TEXT], value[ASSAY_TEXT];
  for (int i = 0; param(NULL, i, name, value) == ncclSuccess; i++) fprintf(stderr, "%s=%s\n", name, value);
}
