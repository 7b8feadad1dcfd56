/* Stops a process at a named step, in builds for tests. */
#include "base/step.h"
#include "base/base.h"

#ifdef CLOCHE_FAULTS
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 20000

/*
 * The file named by CLOCHE_STEP contains the name of a step. A process that reaches the step renames the file to
 * "<file>.at", and continues when that is removed.
 */
void step_reached(const char *name)
{
	const char *path = getenv("CLOCHE_STEP");
	char text[64], at[300];
	struct stat st;
	ssize_t n = path ? fd_get(AT_FDCWD, path, text, sizeof(text)) : -ENOENT;

	if (n < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	snprintf(at, sizeof(at), "%s.at", path);
	if (strcmp(text, name) || rename(path, at) < 0)
		return;
	for (unsigned ms = 0; ms < WAIT_MS && lstat(at, &st) == 0; ms += 2)
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}
#else
typedef int step_nothing; /* a file must not be empty */
#endif
