/* Instructions that change the image's configuration, and no file. */
#include "base/base.h"
#include "base/clock.h"
#include "service/image/build_impl.h"

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
}

#define KEPT_MAX (32 * MIB)

int build_spend(struct build *b, uint64_t steps, struct err *e)
{
	if (steps > b->work)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the Dockerfile asks for too much work with its texts");
	b->work -= steps;
	return 0;
}

int build_keep(struct build *b, uint64_t bytes, struct err *e)
{
	if (bytes > KEPT_MAX - b->kept)
		return err_set(e, ERR_TOO_LARGE, -E2BIG,
			       "the configurations of the Dockerfile's stages are larger than 32 MiB");
	b->kept += bytes;
	return 0;
}

int build_set(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

int build_history(struct build *b, const char *by, bool empty, struct err *e)
{
	struct oci_config *c = &build_stage_now(b)->config;
	struct oci_history *more = realloc(c->history, (c->nhistory + 1) * sizeof(*more));
	char when[32];

	if (!more)
		return out_of_memory(e);
	c->history = more;
	clock_iso(clock_real_ns(), when);
	more[c->nhistory] = (struct oci_history){ .created = strdup(when), .by = strdup(by), .empty = empty };
	c->nhistory++;
	return 0;
}

static int list_fill(struct oci_list *to, const struct words *from, struct err *e)
{
	struct oci_list l = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < from->n; i++)
		r = oci_list_add(&l, from->at[i]);
	if (r < 0) {
		oci_list_done(&l);
		return r == -E2BIG ? err_set(e, ERR_TOO_LARGE, r, "too many words") : out_of_memory(e);
	}
	oci_list_done(to);
	*to = l;
	return 0;
}

/* CMD and ENTRYPOINT: the JSON form as it is; otherwise a shell is put before it. */
static int command(const struct oci_config *c, const struct instruction *in, struct oci_list *to, struct err *e)
{
	struct oci_list l = { 0 };
	int r = 0;

	if (in->json || !in->args.n)
		return list_fill(to, &in->args, e);
	if (c->shell.n)
		for (unsigned i = 0; r == 0 && i < c->shell.n; i++)
			r = oci_list_add(&l, c->shell.item[i]);
	else if ((r = oci_list_add(&l, "/bin/sh")) == 0)
		r = oci_list_add(&l, "-c");
	if (r == 0)
		r = oci_list_add(&l, in->args.at[0]);
	oci_list_done(to);
	*to = l;
	return r < 0 ? out_of_memory(e) : 0;
}

/* ENV and LABEL. */
static int pairs(struct build *b, const struct instruction *in, struct oci_list *to, struct err *e)
{
	AUTO(words_done) struct words all = { 0 };
	int r = 0;

	/* All values of one instruction are expanded with the variables before it. */
	for (size_t i = 0; r == 0 && i + 1 < in->args.n; i += 2) {
		AUTO_FREE char *name = NULL, *value = NULL, *text = NULL;

		r = build_word(b, in->args.at[i], &name, e);
		if (r == 0)
			r = build_word(b, in->args.at[i + 1], &value, e);
		if (r == 0 && (!*name || strchr(name, '=')))
			r = err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.80s' cannot be a name", name);
		if (r == 0 && asprintf(&text, "%s=%s", name, value) < 0) {
			text = NULL;
			r = out_of_memory(e);
		}
		if (r == 0 && words_add(&all, text) < 0)
			r = out_of_memory(e);
	}
	for (size_t i = 0; r == 0 && i < all.n; i++) {
		r = build_spend(b, 32ULL * to->n, e);
		if (r == 0)
			r = build_keep(b, strlen(all.at[i]), e);
		if (r < 0)
			return r;
		r = oci_list_put(to, all.at[i]);
		if (r < 0)
			err_set(e, ERR_TOO_LARGE, r, "too many of them");
	}
	return r;
}

static int add_once(struct build *b, struct oci_list *to, const char *text, struct err *e)
{
	int r = build_spend(b, 32ULL * to->n, e);

	if (r == 0)
		r = build_keep(b, strlen(text), e);
	if (r < 0)
		return r;

	for (unsigned i = 0; i < to->n; i++)
		if (!strcmp(to->item[i], text))
			return 0;
	r = oci_list_add(to, text);
	return r < 0 ? err_set(e, ERR_TOO_LARGE, r, "too many of them") : 0;
}

/* "80", "80/udp", "8000-8003/tcp". */
static int port(struct build *b, struct oci_list *to, const char *text, struct err *e)
{
	unsigned first = 0, last = 0;
	char proto[8] = "tcp", one[32];
	int n = 0, r = 0;

	if (sscanf(text, "%5u%n", &first, &n) != 1)
		goto bad;
	last = first;
	text += n;
	if (*text == '-' && (sscanf(text, "-%5u%n", &last, &n) != 1))
		goto bad;
	if (*text == '-')
		text += n;
	if (*text == '/' && snprintf(proto, sizeof(proto), "%.7s", text + 1) > 0)
		text += strlen(text);
	if (*text || first > last || last > 65535 ||
	    (strcasecmp(proto, "tcp") && strcasecmp(proto, "udp") && strcasecmp(proto, "sctp")))
		goto bad;
	for (char *p = proto; *p; p++)
		*p |= 0x20;
	for (unsigned i = first; r == 0 && i <= last; i++) {
		snprintf(one, sizeof(one), "%u/%s", i, proto);
		r = add_once(b, to, one, e);
	}
	return r;
bad:
	return err_set(e, ERR_INVALID, -EINVAL, "invalid port '%.40s' (like 80, 53/udp, 8000-8010)", text);
}

static int expose(struct build *b, const struct instruction *in, struct oci_config *c, struct err *e)
{
	const struct expand x = build_expand(b);
	AUTO(words_done) struct words all = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < in->args.n; i++)
		r = expand_words(&x, in->args.at[i], &all, e);
	for (size_t i = 0; r == 0 && i < all.n; i++)
		r = port(b, &c->ports, all.at[i], e);
	return r;
}

static int volume(struct build *b, const struct instruction *in, struct oci_config *c, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < in->args.n; i++) {
		AUTO_FREE char *path = NULL;

		r = build_word(b, in->args.at[i], &path, e);
		if (r == 0 && !*path)
			r = err_set(e, ERR_INVALID, -EINVAL, "VOLUME: a path is empty");
		if (r == 0)
			r = add_once(b, &c->volumes, path, e);
	}
	return r;
}

static int health(const struct instruction *in, struct oci_config *c, struct err *e)
{
	static const char *const names[] = { "interval", "timeout", "start-period", "start-interval" };
	struct oci_healthcheck *h = calloc(1, sizeof(*h));
	uint64_t *to[4];
	const char *retries = instruction_flag(in, "retries", NULL);
	bool none = !strcasecmp(in->args.at[0], "NONE");
	int r;

	if (!h)
		return out_of_memory(e);
	to[0] = &h->interval;
	to[1] = &h->timeout;
	to[2] = &h->start_period;
	to[3] = &h->start_interval;
	r = oci_list_add(&h->test, none ? "NONE" : in->json ? "CMD" : "CMD-SHELL");
	for (size_t i = 1; r == 0 && i < in->args.n; i++)
		r = oci_list_add(&h->test, in->args.at[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
		const char *v = instruction_flag(in, names[i], NULL);
		int64_t ns = 0;

		r = v ? docker_duration(v, &ns, e) : 0;
		*to[i] = (uint64_t)ns;
	}
	h->retries = retries ? (unsigned)strtoul(retries, NULL, 10) : 0;
	if (r < 0) {
		oci_list_done(&h->test);
		free(h);
		return e->msg[0] ? r : out_of_memory(e);
	}
	if (c->health)
		oci_list_done(&c->health->test);
	free(c->health);
	c->health = h;
	return 0;
}

static int one_word(struct build *b, const struct instruction *in, char **to, struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = build_word(b, in->args.at[0], &text, e);

	if (r == 0 && !*text)
		return err_set(e, ERR_INVALID, -EINVAL, "%s is empty after expansion", instruction_name(in->kind));
	return r < 0 ? r : build_set(to, text) < 0 ? out_of_memory(e) : 0;
}

static int onbuild(const struct instruction *in, struct oci_config *c, struct err *e)
{
	AUTO_FREE char *text = instruction_trigger(in);

	if (!text)
		return out_of_memory(e);
	return oci_list_add(&c->onbuild, text) < 0 ? out_of_memory(e) : 0;
}

int build_config(struct build *b, const struct instruction *in, struct err *e)
{
	struct build_stage *g = build_stage_now(b);
	struct oci_config *c = &g->config;

	switch (in->kind) {
	case DOCKER_ENV:
		return pairs(b, in, &c->env, e);
	case DOCKER_LABEL:
		return pairs(b, in, &c->labels, e);
	case DOCKER_EXPOSE:
		return expose(b, in, c, e);
	case DOCKER_VOLUME:
		return volume(b, in, c, e);
	case DOCKER_USER:
		return one_word(b, in, &c->user, e);
	case DOCKER_STOPSIGNAL:
		return one_word(b, in, &c->stop_signal, e);
	case DOCKER_MAINTAINER:
		return build_set(&c->author, in->args.at[0]) < 0 ? out_of_memory(e) : 0;
	case DOCKER_SHELL:
		return list_fill(&c->shell, &in->args, e);
	case DOCKER_HEALTHCHECK:
		return health(in, c, e);
	case DOCKER_ONBUILD:
		return onbuild(in, c, e);
	case DOCKER_CMD:
		g->cmd_set = c->has_cmd = true;
		return command(c, in, &c->cmd, e);
	case DOCKER_ENTRYPOINT:
		c->has_entrypoint = true;
		if (!g->cmd_set) { /* the base image's CMD belongs to another program */
			oci_list_done(&c->cmd);
			c->has_cmd = false;
		}
		return command(c, in, &c->entrypoint, e);
	case DOCKER_ADD:
	case DOCKER_ARG:
	case DOCKER_COPY:
	case DOCKER_FROM:
	case DOCKER_RUN:
	case DOCKER_WORKDIR:
		break;
	}
	return err_set(e, ERR_INTERNAL, -EINVAL, "%s is not only about the configuration", instruction_name(in->kind));
}
