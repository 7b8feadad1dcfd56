#include "layers/settle.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/children.h"
#include "layers/settle_mark.h"
#include "layers/settle_work.h"
#include "layers/tree.h"
#include "warden/warden_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "0123456789abcdef01234567"

struct place {
	char path[64];
	int store, dir, program;
	struct layer_children *children;
	struct manifest m; /* provisional */
	struct settles *s;
};

static bool put(int dir, const char *name, const void *data, size_t len)
{
	AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd >= 0 && pwrite(fd, data, len, 0) == (ssize_t)len;
}

/* Makes a layer that was answered, and is not settled. */
static bool make(struct place *p)
{
	char program[512];
	uint64_t boot;
	bool ok;

	memset(p, 0, sizeof(*p));
	p->m.version = MANIFEST_VERSION;
	snprintf(p->m.id, sizeof(p->m.id), ID);
	snprintf(p->path, sizeof(p->path), "/var/tmp/cloche-settle-test-XXXXXX");
	p->store = mkdtemp(p->path) ? open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	ok = p->store >= 0 && mkdirat(p->store, ID, 0700) == 0;
	p->dir = ok ? openat(p->store, ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	ok = p->dir >= 0 && mkdirat(p->dir, "fs", 0700) == 0 && mkdirat(p->dir, "fs/u", 0700) == 0 &&
	     mkdirat(p->dir, "mem", 0700) == 0;
	ok = ok && put(p->dir, "fs/u/f", "file", 4) && put(p->dir, "mem/meta", "meta", 4) &&
	     put(p->dir, "mem/pages", "pages", 5);
	ok = ok && manifest_sum_files(p->dir, NULL, NULL, &p->m) == 0 && mark_boot(&boot) == 0 &&
	     settle_provisional(p->dir, boot, &p->m) == 0;
	ok = ok && put(p->dir, "manifest", &p->m, sizeof(p->m));
	p->program = wt_program("cloche-layers", program, sizeof(program)) ? open(program, O_PATH | O_CLOEXEC) : -1;
	p->children = layer_children_new(p->program, p->store);
	p->s = settles_new(p->children);
	return ok && p->program >= 0 && p->s && settle_add(p->s, &p->m) == 0;
}

static void done(struct place *p)
{
	settles_free(p->s);
	layer_children_free(p->children);
	fd_close(p->program);
	fd_close(p->dir);
	fd_close(p->store);
	CHECK_EQ(tree_remove(AT_FDCWD, p->path), 0);
}

static int settle(struct place *p, struct manifest *ret)
{
	static const int stop;

	return settle_do(p->s, ID, &stop, ret);
}

TEST(what_was_not_changed_is_settled_once_and_is_a_layer_like_any_other)
{
	struct manifest m, is;
	struct place p;

	CHECK(make(&p) && manifest_unsettled(&p.m) && p.m.meta == 4 && p.m.pages == 5 && settle_this_boot(&p.m));
	CHECK(manifest_read(p.dir, ID, &is) == 0 && !memcmp(&is, &p.m, sizeof(is)));
	CHECK_EQ(manifest_verify(p.dir, NULL, &is), -EBADMSG);
	CHECK_EQ(settle(&p, &m), 0);
	CHECK(!manifest_unsettled(&m) && manifest_read(p.dir, ID, &is) == 0 && !memcmp(&is, &m, sizeof(is)));
	CHECK_EQ(manifest_verify(p.dir, NULL, &m), 0);
	CHECK_EQ(settle(&p, &m), 0);
	settle_forget(p.s, ID, false);
	CHECK_EQ(settle(&p, &m), -ESRCH);
	done(&p);
}

/* A tick of the clock for file times may be some milliseconds long. */
static void wait_a_tick(void)
{
	usleep(50000);
}

TEST(memory_that_was_changed_since_is_not_settled)
{
	static const char *const names[] = { "mem/meta", "mem/pages" };
	struct manifest m;
	struct place p;

	for (unsigned i = 0; i < 4; i++) {
		CHECK(make(&p));
		wait_a_tick();
		if (i < 2) { /* other content of the same length */
			CHECK(put(p.dir, names[i], "PAGE", 4));
		} else { /* another file with the same content */
			CHECK(unlinkat(p.dir, names[i - 2], 0) == 0 &&
			      put(p.dir, names[i - 2], "pages", i == 2 ? 4 : 5));
		}
		CHECK_EQ(settle(&p, &m), -EBADMSG);
		CHECK_EQ(settle(&p, &m), -EBADMSG);
		settle_forget(p.s, ID, false);
		CHECK_EQ(settle(&p, &m), -EBADMSG);
		done(&p);
	}
}

TEST(a_manifest_that_was_changed_since_is_not_settled)
{
	struct manifest m;
	struct place p;

	CHECK(make(&p));
	m = p.m;
	m.tenant = 7;
	manifest_seal(&m);
	CHECK(put(p.dir, "manifest", &m, sizeof(m)));
	CHECK_EQ(settle(&p, &m), -EBADMSG);
	done(&p);
}

TEST(one_of_another_boot_is_known)
{
	struct place p;

	CHECK(make(&p));
	p.m.meta_sum[0] ^= 1;
	CHECK(!settle_this_boot(&p.m));
	done(&p);
}

static void *settle_too(void *arg)
{
	struct manifest m;

	return (void *)(intptr_t)settle(arg, &m);
}

TEST(many_may_ask_at_once)
{
	pthread_t t[8];
	struct place p;

	CHECK(make(&p));
	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		CHECK_EQ(pthread_create(&t[i], NULL, settle_too, &p), 0);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		void *r = NULL;

		pthread_join(t[i], &r);
		CHECK_EQ((intptr_t)r, 0);
	}
	done(&p);
}
