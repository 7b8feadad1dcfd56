/* What of machines needs none: which template a sandbox is a clone of, copies with holes, memory that is kept a while. */
#include "warden/vm.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "warden/vm_copy.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t programs[SHA256_SIZE] = "programs", root[SHA256_SIZE] = "root", usr[SHA256_SIZE];

static struct sandbox_spec good(void)
{
	struct sandbox_spec s = { .tenant = 7, .image = "/images/x", .workdir = "/home/user", .flags = SPEC_VM | SPEC_NET };

	s.limits.memory = 256 * MIB;
	s.limits.cpu_milli = 1000;
	s.net.mode = STEER_OPEN;
	return s;
}

/* Whether it is a clone of the same template as good(). */
static bool same(const struct sandbox_spec *s)
{
	const struct sandbox_spec g = good();
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];

	return vm_key(&g, programs, root, usr, a) == 0 && vm_key(s, programs, root, usr, b) == 0 && !memcmp(a, b, sizeof(a));
}

TEST(what_is_one_sandboxs_own_makes_no_other_template)
{
	struct sandbox_spec s = good();

	CHECK(same(&s));
	snprintf(s.hostname, sizeof(s.hostname), "box");
	s.limits.io_bps = 1 << 20;
	s.limits.cpu_milli = 700; /* still one processor */
	s.net.mode = STEER_NONE;
	s.flags |= SPEC_MEMORY;
	memset(s.image + strlen(s.image) + 1, 'x', 20); /* behind the end of a text */
	CHECK(same(&s));
}

TEST(whatever_a_guest_could_tell_apart_is_another_template)
{
	const struct sandbox_spec g = good();
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
	struct sandbox_spec s;

#define OTHER(change)                                                                                                  \
	do {                                                                                                           \
		s = good();                                                                                            \
		change;                                                                                                \
		CHECK(!same(&s));                                                                                      \
	} while (0)
	OTHER(s.tenant++);
	OTHER(s.limits.memory += MIB);
	OTHER(s.limits.cpu_milli = 1001);
	OTHER(s.limits.disk = 64 * MIB);
	OTHER(s.limits.inodes = 1000);
	OTHER(s.limits.pids = 50);
	OTHER(s.uid = 1000);
	OTHER(s.workdir[1] = 'x');
	OTHER(s.flags |= SPEC_READ_ONLY);
	OTHER(s.flags &= ~SPEC_NET; memset(&s.net, 0, sizeof(s.net)));
	CHECK_EQ(vm_key(&g, programs, root, usr, a), 0);
	CHECK_EQ(vm_key(&g, programs, root, root, b), 0);
	CHECK(memcmp(a, b, sizeof(a)));
	CHECK_EQ(vm_key(&g, root, root, usr, b), 0);
	CHECK(memcmp(a, b, sizeof(a)));
}

static int file(void)
{
	return sys_openat(AT_FDCWD, "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

TEST(a_copy_is_the_same_and_has_no_zeros_on_the_disk)
{
	AUTO_CLOSE int from = file(), to = file();
	static char a[12289], b[sizeof(a)];
	const off_t places[] = { 0, 4096, 1 << 20, (3 << 20) + 5, (9 << 20) - 1 };
	int stop = 0;
	struct stat st;

	CHECK_EQ(ftruncate(from, 10 << 20), 0);
	memset(a + 4096, 'y', 4096); /* zeros before and behind it */
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		CHECK_EQ(pwrite(from, a, sizeof(a), places[i]), sizeof(a));
	CHECK_EQ(vm_copy(from, to, &stop), 0);
	CHECK_EQ(fstat(to, &st), 0);
	CHECK_EQ(st.st_size, 10 << 20);
	CHECK(st.st_blocks * 512 < 256 * 1024);
	for (off_t at = 0; at < 10 << 20; at += (off_t)sizeof(a)) {
		ssize_t n = pread(from, a, sizeof(a), at);

		CHECK_EQ(pread(to, b, sizeof(b), at), n);
		CHECK(!memcmp(a, b, (size_t)n));
	}
	stop = 1;
	CHECK_EQ(vm_copy(from, to, &stop), -ECANCELED);
}

TEST(of_memory_that_was_put_together_the_oldest_goes)
{
	char id[ID_SIZE] = "0";
	struct vms v = { 0 };

	for (unsigned i = 0; i < VM_FLATS; i++)
		v.flat[i].ram = -1;
	CHECK_EQ(vm_flat_find(&v, id), -1);
	for (char c = 'a'; c < 'a' + VM_FLATS; c++) {
		id[0] = c;
		vm_flat_put(&v, id, sys_memfd_create("x", MFD_CLOEXEC));
	}
	id[0] = 'a';
	CHECK(vm_flat_find(&v, id) >= 0); /* and it is in use: 'b' is the oldest now */
	id[0] = 'z';
	vm_flat_put(&v, id, sys_memfd_create("x", MFD_CLOEXEC));
	id[0] = 'b';
	CHECK_EQ(vm_flat_find(&v, id), -1);
	id[0] = 'a';
	CHECK(vm_flat_find(&v, id) >= 0);
	vm_flats_idle(&v, UINT64_MAX);
	CHECK_EQ(vm_flat_find(&v, id), -1);
}

TEST(what_goes_to_a_guest_is_nothing_of_its_host)
{
	struct sandbox_spec s = good(), g;

	s.flags |= SPEC_MEMORY;
	s.layers = 1;
	memcpy(s.layer[0], "abc", 4);
	s.net.n = 1;
	s.net.rule[0].first = 1;
	vm_guest_spec(&s, &g);
	CHECK_EQ(g.flags, SPEC_NET);
	CHECK_EQ(g.layers, 0);
	CHECK_EQ(g.layer[0][0], 0);
	CHECK_EQ(g.tenant, 0);
	CHECK_EQ(g.net.mode, STEER_OPEN);
	CHECK_EQ(g.net.n, 0);
}
