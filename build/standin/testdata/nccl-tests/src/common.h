// Stand-in for nccl-tests.
#pragma once
// Runs one test's command line; returns its exit status.
int standinMain(const char *test, int argc, char **argv);
