/* Opens all that the supervisor's children need. */
#include "daemon/places.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "daemon/conf.h"
#include "daemon/folder.h"
#include "daemon/listen.h"
#include "daemon/token_file.h"

#include <unistd.h>

#define API_SOCKET "cloche.sock"
#define WARDEN_SOCKET "warden.sock"
#define EGRESS_SOCKET "egress.sock"
#define RUN_SOCKET "unix:" FOLDER_RUN "/cloche.sock"

static bool is_unix(const char *text)
{
	return !strncmp(text, "unix:", 5);
}

static int take_activated(struct places *p, int n, struct err *e)
{
	struct daemon_config *c = &p->config;
	int r = 0;

	if (n > DAEMON_LISTENERS)
		return err_set(e, ERR_INVALID, -E2BIG, "%d sockets were passed, more than %d", n, DAEMON_LISTENERS);
	conf_clear(c, "listen");
	for (int i = 0; r == 0 && i < n; i++) {
		p->listener[i] = 3 + i;
		r = listen_adopt(3 + i, e);
		if (r == 0)
			r = listen_text(3 + i, c->listen[i].text, sizeof(c->listen[i].text), e);
		c->listen[i].tls = c->tls_cert[0] && !is_unix(c->listen[i].text);
		c->nlisten++;
	}
	return r;
}

static int open_listener(struct places *p, unsigned i, struct err *e)
{
	char *text = p->config.listen[i].text;
	size_t len = strlen(text);

	p->listener[i] = listen_open(text, e);
	if (p->listener[i] < 0)
		return p->listener[i];
	if (is_unix(text) && lstat(text + 5, &p->file[i]) < 0)
		return err_sys(e, ERR_LOST, -errno, "%.120s", text);
	if (!is_unix(text) && len > 2 && !strcmp(text + len - 2, ":0"))
		return listen_text(p->listener[i], text, sizeof(p->config.listen[i].text), e);
	return 0;
}

/* A second socket for users other than the API's, at a path that clients know. Its failure is not fatal. */
static void open_run_socket(struct places *p)
{
	struct daemon_config *c = &p->config;
	unsigned i = c->nlisten;
	struct err e = { 0 };

	for (unsigned k = 0; k < i; k++)
		if (!strcmp(c->listen[k].text, RUN_SOCKET))
			return;
	if (i == DAEMON_LISTENERS || folder_run(&e) < 0)
		return;
	snprintf(c->listen[i].text, sizeof(c->listen[i].text), "%s", RUN_SOCKET);
	c->listen[i].tls = false;
	if (open_listener(p, i, &e) == 0) {
		c->nlisten++;
		return;
	}
	log_info("%s", e.msg);
	fd_close(p->listener[i]);
	p->listener[i] = -1;
	p->file[i] = (struct stat){ 0 };
	memset(&c->listen[i], 0, sizeof(c->listen[i]));
}

static int place(const struct places *p, const char *name, struct err *e)
{
	int r = sys_openat(p->data, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

	return r < 0 ? err_sys(e, ERR_LOST, r, "%s", name) : r;
}

/* The sockets in the data folder: made as the folder's owner, since its links could lead root to any other file. */
static int open_inner(struct places *p, struct err *e)
{
	static const struct listen_unix_opts api = { .type = SOCK_STREAM, .mode = 0666, .ours = true };
	static const struct listen_unix_opts inner = { .type = SOCK_SEQPACKET, .mode = 0600, .ours = true };
	int r = identity_files_as(&p->who, e);

	if (r < 0)
		return r;
	r = p->unix_listener = listen_unix_at(p->data, API_SOCKET, &api, e);
	if (r >= 0)
		r = p->warden_listener = listen_unix_at(p->data, WARDEN_SOCKET, &inner, e);
	if (r >= 0)
		r = p->warden_place = place(p, WARDEN_SOCKET, e);
	if (r >= 0)
		r = p->egress_listener = listen_unix_at(p->data, EGRESS_SOCKET, &inner, e);
	if (r >= 0)
		r = p->egress_place = place(p, EGRESS_SOCKET, e);
	identity_files_back();
	return r < 0 ? err_wrap(e, r, "data folder '%.100s'", p->config.data) : 0;
}

static int get_token(struct places *p, struct err *e)
{
	int r = 0;

	p->first = folder_is_new(p->data);
	if (p->first)
		r = folder_begin(p->data, &p->who, e);
	if (r == 0 && p->config.token_file[0])
		return token_file_get(p->config.token_file, p->token, e);
	return r == 0 && p->first ? token_new(p->token, e) : r;
}

static int open_all(struct places *p, int activated, struct err *e)
{
	struct daemon_config *c = &p->config;
	bool usual = !strcmp(c->data, CONF_DATA);
	char real[DAEMON_PATH];
	int r;

	r = identity_find(c->user, &p->who, e);
	if (r == 0)
		r = p->data = folder_open(c->data, &p->who, real, sizeof(real), &p->reached, e);
	if (r < 0)
		return r;
	memcpy(c->data, real, sizeof(real));
	r = p->lock = folder_lock(p->data, &p->who, FOLDER_LOCK_WAIT_MS, e);
	if (r >= 0)
		r = folder_state(c->data, p->state, sizeof(p->state), e);
	if (r >= 0 && p->check)
		r = p->check(p, e);
	if (r >= 0 && activated)
		r = take_activated(p, activated, e);
	for (unsigned i = 0; r >= 0 && !activated && i < c->nlisten; i++)
		r = open_listener(p, i, e);
	p->shown = c->nlisten;
	if (r >= 0)
		r = open_inner(p, e);
	if (r >= 0)
		r = get_token(p, e);
	if (r >= 0 && usual)
		open_run_socket(p);
	return r < 0 ? r : 0;
}

int places_open(struct places *p, const struct daemon_config *c, int activated, struct err *e)
{
	*p = (struct places){ .check = p->check,
			      .recover = p->recover,
			      .config = *c,
			      .data = -1,
			      .lock = -1,
			      .unix_listener = -1,
			      .warden_listener = -1,
			      .warden_place = -1,
			      .egress_listener = -1,
			      .egress_place = -1 };
	for (unsigned i = 0; i < DAEMON_LISTENERS; i++)
		p->listener[i] = -1;
	p->owner = identity_owner();
	return open_all(p, activated, e);
}

static void remove_inner(struct places *p)
{
	if (p->data < 0 || identity_files_as(&p->who, NULL) < 0)
		return;
	if (p->unix_listener >= 0)
		sys_unlinkat(p->data, API_SOCKET, 0);
	if (p->warden_listener >= 0)
		sys_unlinkat(p->data, WARDEN_SOCKET, 0);
	if (p->egress_listener >= 0)
		sys_unlinkat(p->data, EGRESS_SOCKET, 0);
	identity_files_back();
}

void places_close(struct places *p)
{
	for (unsigned i = 0; i < DAEMON_LISTENERS; i++) {
		const char *path = p->config.listen[i].text + 5;
		struct stat now;

		if (p->file[i].st_ino && lstat(path, &now) == 0 && now.st_ino == p->file[i].st_ino &&
		    now.st_dev == p->file[i].st_dev)
			sys_unlinkat(AT_FDCWD, path, 0);
	}
	remove_inner(p);
	fd_close_many(p->listener, DAEMON_LISTENERS);
	fd_close(p->unix_listener);
	fd_close(p->warden_listener);
	fd_close(p->warden_place);
	fd_close(p->egress_listener);
	fd_close(p->egress_place);
	fd_close(p->lock);
	fd_close(p->data);
	p->data = p->lock = p->unix_listener = p->warden_listener = p->warden_place = -1;
	p->egress_listener = p->egress_place = -1;
	explicit_bzero(p->token, sizeof(p->token));
}
