/*
 * What files.py runs, in sandboxes of all kinds: `file_calls FOLDER COUNT DEPTH` makes, renames, looks at and removes COUNT files and makes as many
 * folders, DEPTH folders below FOLDER, seven times. Prints the least processor time of one call in nanoseconds: create (open and close),
 * rename, stat, unlink, mkdir. Paths are relative, so that depth costs nothing but what is done for each folder above.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TURNS 7
enum call { CREATE, RENAME, STAT, UNLINK, MKDIR, CALLS };

static void must(int r, const char *what)
{
	if (r < 0) {
		perror(what);
		exit(1);
	}
}

static void one(enum call c, unsigned i)
{
	char a[16], b[16];
	struct stat st;

	snprintf(a, sizeof(a), "a%u", i);
	snprintf(b, sizeof(b), "b%u", i);
	switch (c) {
	case CREATE:
		must(close(open(a, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)), "create");
		break;
	case RENAME:
		must(rename(a, b), "rename");
		break;
	case STAT:
		must(stat(b, &st), "stat");
		break;
	case UNLINK:
		must(unlink(b), "unlink");
		break;
	case MKDIR:
		must(mkdir(a, 0755), "mkdir");
		break;
	case CALLS:
		break;
	}
}

static uint64_t used(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	unsigned count = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0,
		 depth = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	uint64_t least[CALLS] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
	char name[16];

	if (!count)
		return 2;
	must(chdir(argv[1]), argv[1]);
	for (unsigned i = 0; i < depth; i++) {
		must(mkdir("d", 0755), "mkdir");
		must(chdir("d"), "chdir");
	}
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (enum call c = 0; c < CALLS; c++) {
			uint64_t from = used(), took;

			for (unsigned i = 0; i < count; i++)
				one(c, i);
			took = used() - from;
			least[c] = took < least[c] ? took : least[c];
		}
		for (unsigned i = 0; i < count; i++) {
			snprintf(name, sizeof(name), "a%u", i);
			must(rmdir(name), "rmdir");
		}
	}
	for (enum call c = 0; c < CALLS; c++)
		printf("%llu ", (unsigned long long)(least[c] / count));
	puts("");
	return 0;
}
