/* Stand-in for mpirun: starts N ranks of a program on this host, gives them
 * Open MPI's environment and memory to meet in, and waits. One rank's failure
 * ends the others, and its status is ours. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared.h"

const char *opal_standin_version(void);

static struct { int ranks, as_root, oversubscribe; } opt;

static void die(const char *message, const char *what) {
	fprintf(stderr, "mpirun (stand-in): %s%s\n", message, what);
	exit(1);
}

static void only_here(const char *hosts) { /* "localhost:2,thishost" */
	char copy[1024], me[256];
	gethostname(me, sizeof me);
	snprintf(copy, sizeof copy, "%s", hosts);
	for (char *h = strtok(copy, ","); h; h = strtok(NULL, ",")) {
		h[strcspn(h, ":")] = 0;
		if (strcmp(h, "localhost") && strcmp(h, "127.0.0.1") && strcmp(h, me)) die("it runs on this host only, not on ", h);
	}
}

static void export_variable(char *variable) { /* "NAME" is in our own environment already */
	char *value = strchr(variable, '=');
	if (!value) return;
	*value = 0;
	setenv(variable, value + 1, 1);
}

static void mca(const char *name, const char *value) {
	char variable[256];
	snprintf(variable, sizeof variable, "OMPI_MCA_%s", name);
	setenv(variable, value, 1);
}

static int is(const char *arg, const char *name) { /* -name and --name */
	return arg[0] == '-' && !strcmp(arg + 1 + (arg[1] == '-'), name);
}

/* Reads the options and returns the index of the program. */
static int parse(int argc, char **argv) {
	static const char *flags[] = {"report-bindings", "display-map", "display-allocation", "tag-output", "q", "quiet", "v", "nooversubscribe", "bind-to-none", NULL};
	static const char *valued[] = {"bind-to", "map-by", "rank-by", "prefix", "wdir", "npernode", "N", "timeout", "output-filename", "hostfile", "machinefile", "default-hostfile", "cpus-per-proc", NULL};
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i++) {
		char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
		int known = 0;
		for (const char **f = flags; *f; f++) known |= is(a, *f);
		if (known) continue;
		for (const char **f = valued; *f; f++) known |= is(a, *f);
		if (is(a, "version") || is(a, "V")) {
			printf("mpirun (Open MPI) %s\n\nStand-in by assay\n", opal_standin_version());
			exit(0);
		} else if (is(a, "help") || is(a, "h")) {
			printf("mpirun (Open MPI) %s (stand-in)\nUsage: mpirun [-np N] [--allow-run-as-root] [--oversubscribe] [--mca NAME VALUE] [-x VAR[=VALUE]] PROGRAM [ARGUMENT…]\n", opal_standin_version());
			exit(0);
		} else if (is(a, "allow-run-as-root")) opt.as_root = 1;
		else if (is(a, "oversubscribe")) opt.oversubscribe = 1;
		else if (is(a, "np") || is(a, "n") || is(a, "c")) opt.ranks = atoi(value), i++;
		else if (is(a, "x")) export_variable(value), i++;
		else if (is(a, "H") || is(a, "host")) only_here(value), i++;
		else if (is(a, "mca") || is(a, "gmca")) {
			if (i + 2 >= argc) die("an option lacks its values: ", a);
			mca(value, argv[i + 2]);
			i += 2;
		} else if (known) i++;
		else die("unrecognized option: ", a);
	}
	if (i >= argc) die("no program was given", "");
	return i;
}

static void check(void) {
	int slots = (int)sysconf(_SC_NPROCESSORS_ONLN);
	const char *root = getenv("OMPI_ALLOW_RUN_AS_ROOT"), *confirm = getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
	if (geteuid() == 0 && !opt.as_root && !(root && confirm && !strcmp(root, "1") && !strcmp(confirm, "1")))
		die("mpirun has detected an attempt to run as root; --allow-run-as-root overrides it", "");
	if (opt.ranks == 0) opt.ranks = slots;
	if (opt.ranks < 0) die("-np wants a positive number", "");
	if (opt.ranks > slots && !opt.oversubscribe)
		die("There are not enough slots available in the system to satisfy the request; --oversubscribe overrides it", "");
}

static void number(const char *name, int value) {
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

static pid_t start(int rank, char **program) {
	pid_t pid = fork();
	if (pid != 0) return pid;
	number("OMPI_COMM_WORLD_RANK", rank);
	number("OMPI_COMM_WORLD_LOCAL_RANK", rank);
	number("OMPI_COMM_WORLD_NODE_RANK", rank);
	number("PMIX_RANK", rank);
	execvp(program[0], program);
	fprintf(stderr, "mpirun was unable to find the specified executable file: %s\n", program[0]);
	_exit(127);
}

int main(int argc, char **argv) {
	char **program = argv + parse(argc, argv);
	check();
	int fd = memfd_create("standin-mpi", 0);
	if (fd < 0 || ftruncate(fd, (off_t)standin_shared_size(opt.ranks)) < 0) die("no memory to share", "");
	number("STANDIN_MPI_FD", fd);
	number("OMPI_COMM_WORLD_SIZE", opt.ranks);
	number("OMPI_COMM_WORLD_LOCAL_SIZE", opt.ranks);
	number("OMPI_UNIVERSE_SIZE", opt.ranks);
	setenv("PMIX_NAMESPACE", "standin", 1);

	pid_t *ranks = calloc((size_t)opt.ranks, sizeof *ranks);
	for (int r = 0; r < opt.ranks; r++)
		if ((ranks[r] = start(r, program)) < 0) die("cannot fork", "");
	int result = 0, status;
	for (pid_t pid; (pid = wait(&status)) > 0;) {
		int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		if (code == 0 || result != 0) continue;
		result = code;
		fprintf(stderr, "mpirun: a rank (pid %d) exited with status %d; the others are ended\n", (int)pid, code);
		for (int r = 0; r < opt.ranks; r++)
			if (ranks[r] != pid) kill(ranks[r], SIGTERM);
	}
	return result;
}
