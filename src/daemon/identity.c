/* Finds the user of the API process, and becomes it. */
#include "daemon/identity.h"
#include "base/base.h"
#include "base/str.h"
#include "base/sys.h"
#include "linux/caps.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

static int parse_id(const char *text, uint32_t *ret)
{
	uint64_t v;

	if (parse_u64(text, &v, NULL) < 0 || v >= UINT32_MAX)
		return -EINVAL;
	*ret = (uint32_t)v;
	return 0;
}

static int parse_numbers(const char *user, struct identity *ret, struct err *e)
{
	const char *colon = strchr(user, ':');
	char uid[16];
	size_t n = colon ? (size_t)(colon - user) : strlen(user);

	if (n < sizeof(uid)) {
		memcpy(uid, user, n);
		uid[n] = '\0';
		if (parse_id(uid, &ret->uid) == 0 && parse_id(colon ? colon + 1 : uid, &ret->gid) == 0)
			return 0;
	}
	return err_set(e, ERR_INVALID, -EINVAL, "user '%.60s': must be a name, UID or UID:GID", user);
}

static int look_up(const char *user, struct identity *ret, struct err *e)
{
	char text[4096];
	struct passwd p, *found = NULL;
	int r = getpwnam_r(user, &p, text, sizeof(text), &found);

	if (found) {
		*ret = (struct identity){ p.pw_uid, p.pw_gid };
		return 0;
	}
	if (!strcmp(user, IDENTITY_DEFAULT)) {
		*ret = (struct identity){ IDENTITY_FALLBACK, IDENTITY_FALLBACK };
		return 0;
	}
	if (!strcmp(user, IDENTITY_EGRESS)) {
		*ret = (struct identity){ IDENTITY_EGRESS_FALLBACK, IDENTITY_EGRESS_FALLBACK };
		return 0;
	}
	err_set(e, ERR_NOT_FOUND, r ? -r : -ENOENT, "user '%.60s' does not exist", user);
	err_remedy(e, "make the user with `useradd --system %.60s`, or use another with --user", user);
	return -ENOENT;
}

int identity_find(const char *user, struct identity *ret, struct err *e)
{
	struct identity found = { 0 };
	int r;

	r = user[0] >= '0' && user[0] <= '9' ? parse_numbers(user, &found, e) : look_up(user, &found, e);
	if (r < 0)
		return r;
	if (!found.uid || !found.gid)
		return err_set(e, ERR_INVALID, -EPERM, "user '%.60s': must not be root", user);
	*ret = found;
	return 0;
}

uid_t identity_owner(void)
{
	const char *sudo = getenv("SUDO_UID");
	uint32_t uid;

	return getuid() == 0 && sudo && parse_id(sudo, &uid) == 0 ? uid : getuid();
}

int identity_become(const struct identity *who, pid_t parent, struct err *e)
{
	uid_t ru, eu, su;
	gid_t rg, eg, sg;
	int r = caps_drop_bounding(0);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "empty the bounding set");
	/* libc's, which reach every thread; without privileges nothing is left of the capabilities. */
	if (setgroups(0, NULL) < 0 || setresgid(who->gid, who->gid, who->gid) < 0 ||
	    setresuid(who->uid, who->uid, who->uid) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "switch to uid %u", who->uid);
	if (getresuid(&ru, &eu, &su) < 0 || getresgid(&rg, &eg, &sg) < 0 || ru != who->uid || eu != who->uid ||
	    su != who->uid || rg != who->gid || eg != who->gid || sg != who->gid || getgroups(0, NULL) != 0 ||
	    setresuid((uid_t)-1, 0, (uid_t)-1) == 0)
		return err_set(e, ERR_INTERNAL, -EPERM, "switch to uid %u: the process still has another uid",
			       who->uid);
	r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (r == 0 && getppid() != parent)
		r = -ESRCH;
	return r < 0 ? err_sys(e, ERR_LOST, r, "the supervisor") : 0;
}

int identity_files_as(const struct identity *who, struct err *e)
{
	/* These two calls return only the previous id; a second call shows whether the first one worked. */
	setfsgid(who->gid);
	setfsuid(who->uid);
	if ((gid_t)setfsgid((gid_t)-1) == who->gid && (uid_t)setfsuid((uid_t)-1) == who->uid)
		return 0;
	identity_files_back();
	return err_set(e, ERR_DENIED, -EPERM, "access files as uid %u", who->uid);
}

void identity_files_back(void)
{
	setfsuid(geteuid());
	setfsgid(getegid());
}
