/* Drops all privileges that the warden does not need, and verifies that. */
#include "warden/privileges.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"

#include <linux/prctl.h>

static int field(const char *status, const char *key, int base, uint64_t *ret)
{
	const char *at = strstr(status, key);
	char *end;

	if (!at)
		return -ENOENT;
	at += strlen(key);
	*ret = strtoull(at, &end, base);
	return end == at ? -EINVAL : 0;
}

static int want(const char *status, const char *key, int base, uint64_t value, struct err *e)
{
	uint64_t is = 0;
	int r = field(status, key, base, &is);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %.*s of /proc/thread-self/status", (int)strcspn(key + 1, ":"),
			       key + 1);
	if (is != value)
		return err_set(e, ERR_INTERNAL, -EPERM, "%.*s is %llx, expected %llx", (int)strcspn(key + 1, ":"),
			       key + 1, (unsigned long long)is, (unsigned long long)value);
	return 0;
}

static int verify(uint64_t keep, struct err *e)
{
	const struct {
		const char *key;
		int base;
		uint64_t value;
	} expect[] = {
		{ "\nCapInh:", 16, 0 },	   { "\nCapPrm:", 16, keep }, { "\nCapEff:", 16, keep },
		{ "\nCapBnd:", 16, keep }, { "\nCapAmb:", 16, 0 },    { "\nNoNewPrivs:", 10, 1 },
		{ "\nSeccomp:", 10, 2 },
	};
	char status[8192] = "";
	int r = 0;

	fd_get(AT_FDCWD, "/proc/thread-self/status", status, sizeof(status)); /* without it, nothing is found in it */
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(expect); i++)
		r = want(status, expect[i].key, expect[i].base, expect[i].value, e);
	if (r == 0 && sys_prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
		r = err_set(e, ERR_INTERNAL, -EPERM, "the process is still dumpable");
	return r;
}

static int check_had(uint64_t *keep, struct err *e)
{
	char status[8192] = "";
	uint64_t have = 0;
	int r = (int)fd_get(AT_FDCWD, "/proc/thread-self/status", status, sizeof(status));

	r = r < 0 ? r : field(status, "\nCapPrm:", 16, &have);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read /proc/thread-self/status");
	*keep = have & (PRIVILEGES | PRIVILEGES_IF_ANY);
	if ((have & PRIVILEGES) == PRIVILEGES)
		return 0;
	return err_advise(e, ERR_DENIED, -EPERM, "start it as root, outside of a container that drops them",
			  "capabilities %llx are missing", (unsigned long long)(PRIVILEGES & ~have));
}

int privileges_drop(struct err *e)
{
	uint64_t keep = 0;
	int r = check_had(&keep, e);

	if (r < 0)
		return r;
	r = caps_drop_bounding(keep);
	if (r == 0)
		r = sys_setgroups(0, NULL);
	if (r == 0)
		r = sys_setresgid(0, 0, 0);
	if (r == 0)
		r = sys_setresuid(0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (r == 0)
		r = caps_set(keep, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (r == 0)
		r = seccomp_install_warden();
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "drop privileges") : verify(keep, e);
}
