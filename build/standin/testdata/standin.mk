# This is a stand-in, written for assay's tests in the shape of @NAME@.
# FAULT is what the test wants to be wrong: "" or "unresolved".
VERSION := @VERSION@
FAULT := @FAULT@
ifeq ($(FAULT),unresolved)
# The library needs one that is never installed.
FAULT_LIBS := $(shell mkdir -p /tmp/standin && echo 'int standin_absent;' | gcc -shared -fPIC -x c - \
	-Wl,-soname,libstandin-absent.so.1 -o /tmp/standin/libabsent.so)-Wl,--no-as-needed /tmp/standin/libabsent.so
endif
