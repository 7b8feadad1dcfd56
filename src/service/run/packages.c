/*
 * Installs packages, and keeps what that has made. One installation of a list runs at a time, and all runs with that list wait for
 * it. When the last of them leaves, it ends.
 */
#include "service/run/packages.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/checkpoint/restore.h"
#include "service/checkpoint/struct.h"
#include "service/exec/exec.h"
#include "service/exec/struct.h"
#include "service/image/image.h"
#include "service/run/struct.h"
#include "service/network/conf.h"
#include "service/template/template.h"

#define SETS_MAX 64U /* of all tenants */
#define SETS_TENANT 8U
#define INSTALL_MS 600000U
#define SAID_MAX 4096U

struct package_set {
	struct package_set *next;
	struct service *s;
	struct tenant *tenant;
	json_t *key; /* what is installed, and into what */
	struct checkpoint *layer; /* referenced; NULL: it is being made */
	uint64_t used_ns;
	struct package_waiter *waiters;
	struct work_sandbox *box;
	json_t *cmd, *env;
	struct who who; /* whose request it was first */
	struct exec *exec; /* referenced, or NULL */
	struct exec_sink sink;
	struct exec_watch watch;
	struct buf said; /* the end of it */
	bool sealing, gone; /* gone: freed by on_sealed() */
	bool unlisted; /* freed when no run waits for it any more */
};

/* --- the list --- */

int packages_check(const json_t *packages, const char *language, struct err *e)
{
	if (!json_is_array(packages) || json_array_size(packages) > PACKAGES_MAX)
		return err_set(e, ERR_INVALID, -EINVAL, "'packages' must be an array of at most %u names",
			       PACKAGES_MAX);
	if (json_array_size(packages) && (!strcmp(language, "shell") || !strcmp(language, "r")))
		return err_set(e, ERR_INVALID, -EINVAL, "'packages' are for python, javascript and typescript");
	for (size_t i = 0; i < json_array_size(packages); i++) {
		const char *text = json_string_value(json_array_get(packages, i));

		/* No options of the installer. */
		if (!text || !*text || *text == '-' || strlen(text) > 200)
			return err_set(e, ERR_INVALID, -EINVAL,
				       "'packages' must be names, as pip or npm takes them (got '%.60s')",
				       text ? text : "no string");
	}
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* In one order, so that the same list is the same. */
static json_t *sorted(const json_t *list)
{
	const size_t n = json_array_size(list);
	json_t **item = calloc(n + 1, sizeof(json_t *)), *to = json_array();

	for (size_t i = 0; item && i < n; i++)
		item[i] = json_array_get(list, i);
	if (item)
		qsort(item, n, sizeof(json_t *), by_text);
	for (size_t i = 0; item && i < n; i++)
		json_array_append(to, item[i]);
	free(item);
	return to;
}

static bool is_python(const struct run_request *q)
{
	return !strcmp(q->language, "python");
}

static json_t *key_of(struct service *s, const struct tenant *t, const struct run_request *q)
{
	const char *image = json_string_value(json_object_get(q->create, "image"));

	return json_pack("{s:s, s:o, s:s?, s:O?, s:O?}", "installer", is_python(q) ? "pip" : "npm", "packages",
			 sorted(q->packages), "image", image ? image_current(s, t, image) : NULL, "isolation",
			 json_object_get(q->create, "isolation"), "env", (json_t *)(uintptr_t)q->code.env);
}

static json_t *command_of(const struct run_request *q)
{
	json_t *cmd =
		is_python(q) ?
			json_pack("[s,s,s,s,s,s,s,s,s]", "python3", "-m", "pip", "install", "--user", "--no-input",
				  "--disable-pip-version-check", "--no-warn-script-location", "--") :
			json_pack("[s,s,s,s,s,s]", "npm", "install", "--no-audit", "--no-fund", "--no-save", "--");

	for (size_t i = 0; i < json_array_size(q->packages); i++)
		json_array_append(cmd, json_array_get(q->packages, i));
	return cmd;
}

/* Of the run's own variables those that are set. Debian's pip wants to hear that this is no machine of a user. */
static json_t *env_of(const struct run_request *q)
{
	json_t *env = json_pack("{s:s, s:s}", "PIP_BREAK_SYSTEM_PACKAGES", "1", "PIP_ROOT_USER_ACTION", "ignore"), *v;
	json_t *walk = (json_t *)(uintptr_t)q->code.env;
	const char *name;

	json_object_foreach(walk, name, v) if (json_is_string(v)) json_object_set(env, name, v);
	return env;
}

/* --- the end of a set --- */

static void set_unlist(struct package_set *p)
{
	struct package_set **at = &p->s->packages;

	p->unlisted = true;
	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	p->next = NULL;
}

static void set_free(struct package_set *p)
{
	if (p->exec) {
		exec_unwatch(&p->watch);
		exec_leave(p->exec, &p->sink);
		exec_unref(TAKE_PTR(p->exec));
	}
	work_sandbox_free(TAKE_PTR(p->box));
	if (p->sealing) {
		p->gone = true;
		return;
	}
	if (p->layer)
		checkpoint_unref(p->layer);
	buf_done(&p->said);
	json_decref(p->key);
	json_decref(p->cmd);
	json_decref(p->env);
	free(p);
}

/* A complete one, which is not for later runs any more: those that wait get it yet. */
static void set_drop(struct package_set *p)
{
	set_unlist(p);
	if (!p->waiters)
		set_free(p);
}

static void tell(struct package_set *p, struct checkpoint *c, const struct err *e)
{
	struct package_waiter *w;

	while ((w = p->waiters)) {
		p->waiters = w->next;
		w->next = NULL;
		w->set = NULL;
		w->fn(w->arg, c, e);
	}
}

static void set_fail(struct package_set *p, const struct err *e)
{
	struct err why = *e;

	set_unlist(p);
	err_wrap(&why, 0, "'packages' cannot be installed");
	tell(p, NULL, &why);
	set_free(p);
}

/* --- the installation --- */

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct package_set *p = arg;

	p->sealing = false;
	if (p->gone) {
		set_free(p);
		return;
	}
	if (!c) {
		set_fail(p, e);
		return;
	}
	checkpoint_ref(c);
	p->layer = c;
	work_sandbox_free(TAKE_PTR(p->box));
	tell(p, c, NULL);
}

static void on_data(void *arg, enum exec_stream which, const char *text, size_t len)
{
	struct package_set *p = arg;

	(void)which;
	if (len > SAID_MAX) {
		text += len - SAID_MAX;
		len = SAID_MAX;
	}
	if (p->said.len + len > SAID_MAX)
		buf_drop(&p->said,
			 p->said.len + len - SAID_MAX < p->said.len ? p->said.len + len - SAID_MAX : p->said.len);
	buf_add(&p->said, text, len);
}

/* pip and npm name the reason in a line of its own. */
static const char *reason(struct buf *said, int *ret_len)
{
	static const char *const marks[] = { "ERROR: ", "npm ERR! ", "npm error ", "No module named" };
	const char *text = buf_str(said), *at = NULL;

	for (size_t i = 0; !at && i < ARRAY_LEN(marks); i++)
		at = strstr(text, marks[i]);
	at = at ? at : text;
	*ret_len = (int)strcspn(at, "\n");
	return at;
}

static void on_change(void *arg, struct exec *x)
{
	struct package_set *p = arg;
	struct sandbox *b = p->box ? work_sandbox_get(p->box) : NULL;
	const struct err *why;
	struct err e = { 0 };
	const char *text;
	int n;

	if (!exec_over(x))
		return;
	exec_unwatch(&p->watch);
	why = exec_failure(x);
	if (why) {
		set_fail(p, why);
		return;
	}
	if (exec_exit_code(x) != 0 || !b) {
		text = reason(&p->said, &n);
		if (exec_timed_out(x))
			err_set(&e, WHY_NO_PROGRESS, -ETIMEDOUT, "it took longer than %u minutes", INSTALL_MS / 60000U);
		else
			err_set(&e, WHY_COMMAND_FAILED, -EIO, "exit code %d: %.*s", exec_exit_code(x),
				n < 160 ? n : 160, text);
		err_remedy(
			&e,
			"check the names, and that `network` (or the configuration's network_set `packages`) allows the registry's hosts");
		set_fail(p, &e);
		return;
	}
	p->sealing = true;
	checkpoint_make_hidden(b, &p->who, MEMORY_NO, NETWORK_DROP, on_sealed, p);
}

static int install(struct package_set *p, struct sandbox *b, struct err *e)
{
	AUTO(json_decref) json_t *o = json_pack("{s:O, s:O}", "cmd", p->cmd, "env", p->env);
	struct exec_request *w = NULL;
	int r = o ? exec_request_read(b, o, &w, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");

	if (r < 0)
		return r;
	w->timeout_ms = INSTALL_MS;
	p->sink = (struct exec_sink){ .data = on_data, .arg = p };
	r = exec_new(b, &p->who, w, &p->sink, &p->exec, e);
	if (r == 0)
		exec_watch(p->exec, &p->watch, on_change, p);
	return r;
}

static void on_box(void *arg, struct sandbox *b, const struct err *e)
{
	struct package_set *p = arg;
	struct err why = { 0 };

	if (!b)
		set_fail(p, e);
	else if (install(p, b, &why) < 0)
		set_fail(p, &why);
}

/* --- from runs --- */

/* With the request's own network; without one, what the administrator allows for this. */
static int network_of(struct service *s, const struct run_request *q, json_t *create, struct err *e)
{
	const json_t *given = json_object_get(q->create, "network");
	const char *rules[EGRESS_RULES_MAX];
	struct net_request *net = NULL;
	int r = net_request_parse(given, &net, e);
	const bool on = net_request_on(net);

	net_request_free(net);
	if (r < 0)
		return r;
	if (on)
		return json_object_set(create, "network", (json_t *)(uintptr_t)given);
	if (net_conf_set(s->o.net, "packages", rules) < 0) {
		err_set(e, WHY_HOST_FORBIDS, -ENETUNREACH, "'packages' cannot be installed: the run has no network");
		err_remedy(
			e,
			"allow the registry's hosts in `network`, or have the administrator add `network_set = packages: HOST, …`");
		return -ENETUNREACH;
	}
	return json_object_set_new(create, "network", json_pack("{s:[s]}", "allow", "@packages"));
}

static void make_room(struct service *s, const struct tenant *t)
{
	struct package_set *oldest = NULL;
	unsigned all = 0, own = 0;

	for (struct package_set *p = s->packages; p; p = p->next) {
		all++;
		own += p->tenant == t;
	}
	for (struct package_set *p = s->packages; p; p = p->next)
		if (p->layer && !p->waiters && (own < SETS_TENANT || p->tenant == t) &&
		    (!oldest || p->used_ns < oldest->used_ns))
			oldest = p;
	if (!oldest || (all < SETS_MAX && own < SETS_TENANT))
		return;
	set_drop(oldest);
}

static int begin(struct service *s, const struct who *who, const struct run_request *q, json_t *key,
		 struct package_set **ret, struct err *e)
{
	AUTO(json_decref) json_t *create = json_copy(q->create);
	struct sandbox_request *w = NULL;
	struct who own = *who;
	struct package_set *p;
	int r;

	json_object_del(create, "secrets");
	r = network_of(s, q, create, e);
	if (r == 0)
		r = request_from(s, &own, create, &w, e);
	if (r < 0)
		return r;
	make_room(s, who->tenant);
	p = calloc(1, sizeof(*p));
	if (!p)
		abort(); /* a few hundred bytes only */
	*p = (struct package_set){
		.s = s, .tenant = own.tenant, .key = json_incref(key), .who = own, .next = s->packages
	};
	p->cmd = command_of(q);
	p->env = env_of(q);
	p->said = (struct buf)BUF_INIT(2U * SAID_MAX);
	s->packages = p;
	w->origin.run = true;
	p->box = work_sandbox_make(s, &own, w, on_box, p);
	*ret = p;
	return 0;
}

static void on_there(void *arg)
{
	struct package_waiter *w = arg;
	struct package_set *p = w->set;
	struct checkpoint *layer = p->layer;

	checkpoint_ref(layer);
	packages_leave(w);
	w->fn(w->arg, layer, NULL);
	checkpoint_unref(layer);
}

int packages_get(struct service *s, const struct who *who, const struct run_request *q, struct package_waiter *w,
		 struct err *e)
{
	AUTO(json_decref) json_t *key = key_of(s, who->tenant, q);
	struct package_set *p = s->packages;
	int r = 0;

	while (p && (p->tenant != who->tenant || !json_equal(p->key, key)))
		p = p->next;
	if (p && p->layer && checkpoint_ready(p->layer, e) < 0) {
		set_drop(p);
		p = NULL;
	}
	if (!p)
		r = begin(s, who, q, key, &p, e);
	if (r < 0)
		return r;
	p->used_ns = clock_mono_ns();
	w->set = p;
	w->next = p->waiters;
	p->waiters = w;
	if (p->layer)
		turn_after(s->turn, &w->wait, on_there, w);
	return 0;
}

void packages_leave(struct package_waiter *w)
{
	struct package_set *p = w->set;
	struct package_waiter **at = p ? &p->waiters : NULL;

	turn_cancel(&w->wait);
	if (!p)
		return;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	w->next = NULL;
	w->set = NULL;
	if (p->waiters || (p->layer && !p->unlisted))
		return;
	set_drop(p);
}

void packages_drop(struct service *s, const struct tenant *t)
{
	struct package_set *next;

	for (struct package_set *p = s->packages; p; p = next) {
		next = p->next;
		if ((t && p->tenant != t) || !p->layer)
			continue;
		set_drop(p);
	}
}
