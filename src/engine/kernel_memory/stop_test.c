/*
 * Stopping a walk through a sandbox's descriptors. The sandbox is this process: the list of its group's processes is a
 * pipe that the test controls.
 */
#include "engine/kernel_memory/files.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS 16

struct place {
	char dir[64], list[96];
	struct cgroup_host cgroups;
	struct cgroup group;
	struct kernel_files files;
	struct kernel_look look;
	int fds[DESCRIPTORS];
};

static void place_init(struct place *p)
{
	char sub[96];

	*p = (struct place){ .files.looked_ns = 1 };
	snprintf(p->dir, sizeof(p->dir), "/var/tmp/cloche-kernel-stop-XXXXXX");
	CHECK(mkdtemp(p->dir) != NULL);
	snprintf(sub, sizeof(sub), "%s/group", p->dir);
	snprintf(p->list, sizeof(p->list), "%s/group/cgroup.procs", p->dir);
	CHECK_EQ(mkdir(sub, 0700), 0);
	CHECK_EQ(mkfifo(p->list, 0600), 0);
	p->cgroups.version = 1;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		p->cgroups.base[i] = -1;
	p->cgroups.base[CGROUP_MEMORY] = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(p->group.name, sizeof(p->group.name), "group");
	for (unsigned i = 0; i < DESCRIPTORS; i++)
		p->fds[i] = eventfd(0, EFD_CLOEXEC);
	p->look = (struct kernel_look){ .pid = getpid(),
					.pidfd = -1,
					.host = &p->cgroups,
					.cgroup = &p->group,
					.memory = 64 * MIB,
					.net = -1,
					.files = &p->files };
	p->look.files_host = kernel_files_host_new(&p->cgroups);
	CHECK(p->look.files_host != NULL);
}

static void place_done(struct place *p)
{
	char sub[96];

	kernel_files_done(&p->files);
	kernel_files_host_free(p->look.files_host);
	fd_close_many(p->fds, DESCRIPTORS);
	fd_close(p->cgroups.base[CGROUP_MEMORY]);
	snprintf(sub, sizeof(sub), "%s/group", p->dir);
	CHECK_EQ(unlink(p->list), 0);
	CHECK_EQ(rmdir(sub), 0);
	CHECK_EQ(rmdir(p->dir), 0);
}

static void *looks(void *arg)
{
	kernel_files_look(arg);
	return NULL;
}

/* A look waits for the list. Then @stop, and it gets the list. A walk that is cut reads the list again, from a file. */
static void look_while(struct place *p, bool stop)
{
	pthread_t t;
	int fd, file;

	CHECK_EQ(pthread_create(&t, NULL, looks, &p->look), 0);
	fd = open(p->list, O_WRONLY | O_CLOEXEC); /* returns as soon as the look has begun to read */
	CHECK(fd >= 0);
	if (stop)
		kernel_files_stop(&p->files);
	CHECK_EQ(unlink(p->list), 0);
	file = open(p->list, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(dprintf(file, "%d\n", getpid()) > 0);
	fd_close(file);
	CHECK(dprintf(fd, "%d\n", getpid()) > 0);
	fd_close(fd);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_EQ(unlink(p->list), 0);
	CHECK_EQ(mkfifo(p->list, 0600), 0);
}

TEST(a_walk_that_waits_for_the_list_of_processes_finds_their_descriptors)
{
	struct place p;

	place_init(&p);
	look_while(&p, false);
	while (p.files.cut) { /* the walk took longer than its time: continues at once */
		kernel_files_host_free(p.look.files_host);
		p.look.files_host = kernel_files_host_new(&p.cgroups);
		p.files.looked_ns = 1;
		p.files.cost_ns = 0;
		look_while(&p, false);
	}
	CHECK(p.files.descriptors >= DESCRIPTORS * 96);
	place_done(&p);
}

TEST(a_walk_that_is_stopped_ends_at_the_next_descriptor)
{
	struct place p;
	uint64_t looked;

	place_init(&p);
	look_while(&p, true);
	CHECK(p.files.cut);
	CHECK(p.files.descriptors <= 288);
	/* After the stop, another look does nothing: it does not wait for the list. */
	looked = p.files.looked_ns = 1;
	kernel_files_look(&p.look);
	CHECK_EQ(p.files.looked_ns, looked);
	place_done(&p);
}
