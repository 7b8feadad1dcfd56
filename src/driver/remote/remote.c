/* The container tier, made by a warden in another process. What runs inside is spoken to directly all the same. */
#include "driver/remote/remote.h"
#include "base/base.h"

static const struct driver remote_driver;

struct client *remote_client(const struct engine *g)
{
	return engine_maker_arg(g);
}

static struct client_sandbox *tier(struct tier_sandbox *s)
{
	return s->tier;
}

static int remote_create(struct engine *g, const struct sandbox_spec *spec, struct tier_sandbox *ret, struct err *e)
{
	struct client_sandbox *cs = malloc(sizeof(*cs));
	int r;

	if (!cs)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	r = client_create(remote_client(g), spec, cs, e);
	if (r < 0) {
		free(cs);
		return r;
	}
	*ret = (struct tier_sandbox){ .driver = &remote_driver, .engine = g, .tier = cs };
	ret->pidfd = cs->pidfd;
	ret->receipt = cs->receipt;
	link_init(&ret->link, cs->sock);
	for (unsigned i = 0; i < STEER_SOCKETS; i++)
		ret->net[i] = TAKE_FD(cs->net[i]);
	return 0;
}

static int remote_destroy(struct tier_sandbox *s, struct err *e)
{
	int r = client_destroy(remote_client(s->engine), tier(s)->handle, e);

	link_done(&s->link);
	fd_close_many(s->net, STEER_SOCKETS);
	client_sandbox_done(tier(s));
	free(s->tier);
	s->tier = NULL;
	return r;
}

static int remote_stat(struct tier_sandbox *s, struct warden_stat *ret, struct err *e)
{
	return client_stat(remote_client(s->engine), tier(s)->handle, ret, e);
}

static int remote_freeze(struct tier_sandbox *s, struct err *e)
{
	return client_freeze(remote_client(s->engine), tier(s)->handle, e);
}

static int remote_thaw(struct tier_sandbox *s, struct err *e)
{
	return client_thaw(remote_client(s->engine), tier(s)->handle, e);
}

static int remote_refresh(struct tier_sandbox *s)
{
	return client_refresh(remote_client(s->engine), tier(s)->handle, NULL);
}

static int remote_who(struct tier_sandbox *s, const struct warden_who *who, struct socket_owner *ret, struct err *e)
{
	return client_who(remote_client(s->engine), tier(s)->handle, who, ret, e);
}

static int remote_denied(struct tier_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	return client_denied(remote_client(s->engine), tier(s)->handle, ret, e);
}

static const struct driver remote_driver = {
	.name = "container",
	.abilities = DRIVER_FREEZE,
	.create = remote_create,
	.destroy = remote_destroy,
	.stat = remote_stat,
	.freeze = remote_freeze,
	.thaw = remote_thaw,
	.refresh = remote_refresh,
	.who = remote_who,
	.denied = remote_denied,
};

static void free_client(void *client)
{
	client_free(client);
}

int remote_open(int fd, struct engine **ret, struct err *e)
{
	struct engine_opts o = { .maker = &remote_driver, .maker_free = free_client };
	struct client *c;
	int r = client_connect(fd, &c, e);

	if (r < 0)
		return r;
	o.maker_arg = c;
	r = engine_new(&o, ret, e);
	if (r < 0)
		client_free(c);
	return r;
}
