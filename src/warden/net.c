/* The way out of a sandbox: see linux/steer.h for what is done, and docs/design/0010-egress.md for why. */
#include "warden/inside.h"
#include "base/base.h"

void warden_net_sockets(struct warden_sandbox *s, int ret[STEER_SOCKETS])
{
	(void)s;
	for (unsigned i = 0; i < STEER_SOCKETS; i++)
		ret[i] = -1;
}

static int not_yet(struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this warden gives no network yet");
}

int warden_net(struct warden *w, struct warden_sandbox *s, const struct steer_rules *rules, int *ret_sockets,
	       struct err *e)
{
	(void)w, (void)s, (void)rules, (void)ret_sockets;
	return not_yet(e);
}

int warden_socket(struct warden *w, struct warden_sandbox *s, unsigned family, int *ret, struct err *e)
{
	(void)w, (void)s, (void)family, (void)ret;
	return not_yet(e);
}

int warden_who(struct warden *w, struct warden_sandbox *s, const struct warden_who *who, struct warden_they *ret,
	       struct err *e)
{
	(void)w, (void)s, (void)who, (void)ret;
	return not_yet(e);
}

int warden_denied(struct warden *w, struct warden_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	(void)w, (void)s, (void)ret;
	return not_yet(e);
}
