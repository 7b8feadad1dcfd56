/*
 * What the fillers share. `filler KIND PROCESSES SECONDS` starts so many processes. Each takes kernel memory of one kind until
 * something says no, and keeps it. At the end of the time, or half a second after the last of them has got no more, all are killed,
 * and one line says how many objects there were and which error ended it. Static, without files of its own: it runs in any image, on any kernel.
 */
#pragma once
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct fill_shared {
	atomic_long objects;
	atomic_int error; /* the last one */
	atomic_int full; /* processes that get no more */
};
static struct fill_shared *fill;

struct fill_kind {
	const char *name;
	void (*fn)(int nth); /* returns when it gets no more; what it holds stays until it is killed */
};

static inline void fill_count(long n)
{
	atomic_fetch_add(&fill->objects, n);
}

/* One object, or the error that says why not. */
static inline int fill_note(long r)
{
	if (r < 0) {
		atomic_store(&fill->error, errno);
		return -1;
	}
	fill_count(1);
	return 0;
}

static inline void fill_wait(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds };

	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

static inline int fill_main(int argc, char **argv, const struct fill_kind *kinds, size_t n)
{
	const struct fill_kind *k = NULL;
	int processes, started = 0;
	struct rlimit files;
	double seconds, left;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < n; i++)
			puts(kinds[i].name);
		return 0;
	}
	for (size_t i = 0; argc == 4 && i < n; i++)
		if (!strcmp(kinds[i].name, argv[1]))
			k = &kinds[i];
	if (!k) {
		fprintf(stderr, "usage: %s KIND PROCESSES SECONDS | --list\n", argv[0]);
		return 2;
	}
	processes = atoi(argv[2]);
	seconds = atof(argv[3]);
	fill = mmap(NULL, sizeof(*fill), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fill == MAP_FAILED)
		return 2;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	setpgid(0, 0);
	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			k->fn(i);
			atomic_fetch_add(&fill->full, 1);
			for (;;)
				pause();
		}
		started++;
	}
	for (left = seconds; left > 0; left -= 0.02) {
		if (atomic_load(&fill->full) >= started && left > 0.5)
			left = 0.5;
		fill_wait(0.02);
	}
	signal(SIGTERM, SIG_IGN);
	printf("%ld objects, %s\n", atomic_load(&fill->objects),
	       atomic_load(&fill->error) ? strerror(atomic_load(&fill->error)) : "no error");
	fflush(stdout);
	kill(-getpid(), SIGTERM);
	while (waitpid(-1, NULL, 0) > 0)
		;
	return 0;
}
