/* Finds the secrets of a sandbox, and passes them to its network. */
#include "service/secret/give.h"
#include "service/sandbox/part.h"
#include "base/base.h"
#include "base/log.h"
#include "service/network/network.h"
#include "service/exec/exec.h"
#include "service/file/file.h"
#include "service/secret/struct.h"
#include "tls/ca.h"

#define DIR_SIZE (4 * MIB)
/* of one sandbox: they are all looked for in its output, by a process that serves all */
#define VALUES_MAX (128U * 1024U)
#define CA_FILE SECRET_DIR "/.ca-certificates.crt"
#define IMAGE_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define STEPS_MAX (4 * SECRET_USES_MAX + 3)

static bool needs_dir(const struct sandbox_request *w)
{
	return secret_uses_as(&w->secrets, SECRET_FILE) || secrets_need_ca(w);
}

/* --- whether it may --- */

static size_t value_len(const struct secret *c)
{
	return c && c->values && c->values->len > VAULT_OVERHEAD ? c->values->len - VAULT_OVERHEAD : 0;
}

/* What a sandbox with these has to have looked for, when @c has @len bytes. */
static size_t values_len(struct service *s, const struct tenant *t, const struct secret_uses *u, const struct secret *c,
			 size_t len)
{
	size_t total = 0;

	for (uint32_t i = 0; i < u->n; i++) {
		const struct secret *one = secret_uses_first(u, i) ? secret_any(s, t, u->use[i].name) : NULL;

		total += one && one == c ? len : value_len(one);
	}
	return total;
}

static int check_one(struct service *s, const struct tenant *t, struct sandbox_request *w, struct secret_use *u,
		     struct err *e)
{
	AUTO(vault_wipe) struct buf value = BUF_INIT(VAULT_VALUE_MAX + 1);
	const struct secret *c = secret_any(s, t, u->name);
	int r;

	if (u->as == SECRET_MASK)
		return 0;
	if (!c || c->gone) {
		if (w->wake) { /* it was deleted while this one slept */
			secret_use_only_mask(u);
			return 0;
		}
		err_set(e, WHY_SECRET_MISSING, -ENOENT, "secret '%s' does not exist%s", u->name,
			c ? " any longer" : "");
		err_remedy(e, "set it: `cloche secret set %s`; or use none: --no-secrets (\"secrets\": \"drop\")",
			   u->name);
		return -ENOENT;
	}
	r = secret_read(c, &value, e);
	if (r == 0 && u->as == SECRET_ENV && memchr(value.data, '\0', value.len))
		r = err_set(e, ERR_INVALID, -EINVAL, "secret '%s' contains a NUL byte: it cannot be passed as env",
			    u->name);
	if (r == 0 && secret_injected(u))
		r = secrets_check_inject(s, w, u, &value, e);
	return r;
}

int secrets_check(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e)
{
	unsigned injected = 0;
	int r = 0;

	for (uint32_t i = 0; i < request->secrets.n; i++)
		injected += secret_injected(&request->secrets.use[i]);
	if (injected > EGRESS_INJECTS_MAX)
		r = err_set(e, ERR_INVALID, -E2BIG, "'secrets': at most %u injected ones", EGRESS_INJECTS_MAX);
	for (uint32_t i = 0; r == 0 && i < request->secrets.n; i++)
		r = check_one(s, t, request, &request->secrets.use[i], e);
	/* One that wakes up had them all before. */
	if (r == 0 && !request->wake && values_len(s, t, &request->secrets, NULL, 0) > VALUES_MAX)
		r = err_set(e, ERR_TOO_LARGE, -E2BIG, "the secrets of a sandbox must be at most %u KiB in total",
			    VALUES_MAX / 1024U);
	if (r == 0 && needs_dir(request) && request->spec->ntmpfs == SPEC_TMPFS)
		r = err_set(e, ERR_INVALID, -E2BIG,
			    "'tmpfs': at most %d with secrets or +terminate, which need one themselves",
			    SPEC_TMPFS - 1);
	return r;
}

/* --- masks --- */

/* Values as they are gathered: their texts, one behind the other, and where each ends. */
struct gathered {
	struct buf text;
	size_t end[SECRET_USES_MAX * SECRET_VERSIONS];
	size_t n;
};

/* The value of @c that has @older newer ones, if it is kept and fits. */
static int gather(const struct secret *c, unsigned older, struct gathered *g, struct err *e)
{
	const struct secret_value *v = c->values;
	int r;

	for (unsigned i = 0; v && i < older; i++)
		v = v->next;
	if (!v || (older && g->text.len + v->len > VALUES_MAX))
		return 0;
	r = secret_read_version(c, v, &g->text, e);
	/* One from before a change of the key was never given by us since. */
	if (r == -EBADMSG && v->version != c->version) {
		log_warn("%s", e->msg);
		return 0;
	}
	if (r == 0)
		g->end[g->n++] = g->text.len;
	return r;
}

/* Those it has now, all of them; then older ones, the younger first, while there is room. */
static int gather_all(const struct sandbox *b, struct gathered *g, struct err *e)
{
	const struct secret_uses *u = &b->request->secrets;
	const struct secret *c;
	int r = 0;

	for (unsigned older = 0; r == 0 && older < SECRET_VERSIONS; older++)
		for (uint32_t i = 0; r == 0 && i < u->n; i++) {
			c = secret_uses_first(u, i) ? secret_any(b->service, b->tenant, u->use[i].name) : NULL;
			r = c ? gather(c, older, g, e) : 0;
		}
	return r;
}

/* Sandboxes with the same values share one mask. NULL: no other has it. */
static struct mask *same_mask(const struct sandbox *b, const uint8_t sum[SHA256_SIZE])
{
	const struct sandbox *other;
	size_t at = 0;

	while ((other = map_next(&b->service->sandboxes, &at)))
		if (other->tenant == b->tenant && other->secrets && other->secrets->mask &&
		    !memcmp(other->secrets->mask_sum, sum, SHA256_SIZE))
			return mask_ref(other->secrets->mask);
	return NULL;
}

static int make_mask(const struct sandbox *b, struct mask **ret, uint8_t sum[SHA256_SIZE], struct err *e)
{
	AUTO_FREE struct gathered *g = calloc(1, sizeof(*g));
	AUTO_FREE struct mask_value *v = calloc(SECRET_USES_MAX * SECRET_VERSIONS, sizeof(*v));
	struct sha256 hash;
	size_t at = 0;
	int r = g && v ? 0 : -ENOMEM;

	if (r == 0) {
		g->text = (struct buf)BUF_INIT((size_t)SECRET_USES_MAX * (VAULT_VALUE_MAX + 1) + VALUES_MAX);
		r = gather_all(b, g, e);
	}
	sha256_init(&hash);
	for (size_t i = 0; r == 0 && i < g->n; i++) {
		v[i] = (struct mask_value){ g->text.data + at, g->end[i] - at, false };
		at = g->end[i];
		sha256_add(&hash, &v[i].len, sizeof(v[i].len));
		sha256_add(&hash, v[i].data, v[i].len);
	}
	sha256_end(&hash, sum);
	*ret = r == 0 ? same_mask(b, sum) : NULL;
	if (r == 0 && !*ret)
		r = mask_new(v, g->n, ret);
	if (g)
		vault_wipe(&g->text);
	return r == -ENOMEM ? err_set(e, ERR_EXHAUSTED, r, "no memory for a sandbox") : r;
}

int secrets_fit(const struct secret *c, size_t len, struct err *e)
{
	const struct sandbox *b;
	size_t at = 0;

	if (len <= value_len(c))
		return 0;
	while ((b = map_next(&c->service->sandboxes, &at))) {
		if (b->tenant != c->tenant || !secret_uses_have(&b->request->secrets, c->name) ||
		    values_len(c->service, b->tenant, &b->request->secrets, c, len) <= VALUES_MAX)
			continue;
		err_set(e, ERR_TOO_LARGE, -E2BIG, "with this value the secrets of sandbox '%s' would exceed %u KiB",
			b->request->name, VALUES_MAX / 1024U);
		err_remedy(e, "delete that sandbox first, or use another name for the secret");
		return -E2BIG;
	}
	return 0;
}

int secrets_begin(struct sandbox *b, const struct sandbox *like, struct err *e)
{
	struct sandbox_secrets *x;
	int r;

	if (!b->request->secrets.n && !secrets_need_ca(b->request))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	b->secrets = x;
	x->stale = b->found; /* we may have died between a rotation and its files */
	r = b->request->secrets.n ? make_mask(b, &x->mask, x->mask_sum, e) : 0;
	if (r == 0 && !b->found)
		r = secrets_make_ca(b, like, e);
	if (r < 0)
		secrets_free(b);
	return r;
}

void secrets_spec(const struct sandbox_request *request, struct sandbox_spec *spec)
{
	struct spec_tmpfs *t;

	if (!needs_dir(request) || spec->ntmpfs == SPEC_TMPFS)
		return;
	t = &spec->tmpfs[spec->ntmpfs++];
	*t = (struct spec_tmpfs){ .size = DIR_SIZE };
	snprintf(t->path, sizeof(t->path), SECRET_DIR);
}

void secrets_free(struct sandbox *b)
{
	struct sandbox_secrets *x = b->secrets;

	if (!x)
		return;
	assert(!x->giving);
	mask_unref(x->mask);
	free(x->ca_cert);
	if (x->ca_key)
		explicit_bzero(x->ca_key, strlen(x->ca_key));
	free(x->ca_key);
	free(x->ca_sealed);
	vault_wipe(&x->told);
	free(x);
	b->secrets = NULL;
}

void secrets_move(struct sandbox *b, struct sandbox *from)
{
	struct sandbox_secrets *was = b->secrets;

	b->secrets = from->secrets;
	from->secrets = was; /* freed with it */
	if (b->secrets) { /* sealed for another id */
		free(b->secrets->ca_sealed);
		b->secrets->ca_sealed = NULL;
	}
}

/* --- files --- */

struct step {
	enum file_type type;
	bool as_root, optional;
	uint32_t mode;
	char path[1100];
	char to[sizeof(SECRET_DIR) + SECRET_NAME_SIZE + 8]; /* of a link, or a move */
	struct buf data;
};

struct give {
	struct sandbox *sandbox;
	struct sandbox_secrets *of;
	uint64_t handle;
	secrets_given_fn *fn;
	struct step *step;
	unsigned n, at;
	int r;
	struct err e;
	struct turn_wait wait;
};

static void run_step(struct give *g);

static void give_free(struct give *g)
{
	for (unsigned i = 0; i < g->n; i++)
		vault_wipe(&g->step[i].data);
	free(g->step);
	sandbox_unref(g->sandbox);
	free(g);
}

static void on_told(void *arg)
{
	struct give *g = arg;
	struct sandbox *b = g->sandbox;

	g->of->giving = NULL;
	if (g->r == 0)
		g->of->ca_fresh = false;
	g->fn(b, g->r, g->r < 0 ? &g->e : NULL);
	/* What was changed in the meantime. */
	if (b->secrets == g->of && g->of->stale && g->r == 0)
		secrets_refresh(b);
	give_free(g);
}

/* Never from within the call that began it. */
static void finish(struct give *g, int r)
{
	g->r = r;
	turn_after(g->sandbox->service->turn, &g->wait, on_told, g);
}

static void on_entry(void *arg, const struct file_entry *x)
{
	struct give *g = arg;

	if (g->step[g->at].type == FILE_WRITE && !g->step[g->at].as_root)
		g->of->dev = x->dev;
}

static void on_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct give *g = arg;

	(void)x;
	(void)flags;
	if (r < 0 && (!g->step[g->at].optional || r == -EPIPE)) {
		g->e = *e;
		err_wrap(&g->e, r, "secrets");
		finish(g, r);
		return;
	}
	g->at++;
	run_step(g);
}

static void run_step(struct give *g)
{
	static const struct file_calls calls = { .entry = on_entry, .done = on_done };
	static const struct user_request root = { .text = "root" };
	struct sandbox *b = g->sandbox;
	struct step *s = &g->step[g->at];
	struct file_request q = { .path = s->path, .to = s->to, .mode = s->mode };
	unsigned flags = s->type == FILE_REMOVE ? 0 : s->type == FILE_WRITE ? FILE_PARENTS | FILE_MODE : FILE_PARENTS;
	struct file_op *op;
	int r;

	if (g->at == g->n) {
		finish(g, 0);
		return;
	}
	if (b->handle != g->handle) {
		finish(g, err_set(&g->e, WHY_SANDBOX_LOST, -ESRCH, "the sandbox has ended"));
		return;
	}
	if (s->optional)
		flags &= ~(unsigned)FILE_PARENTS;
	r = file_begin(b, s->as_root ? &root : &b->request->user, s->type, flags, &q, &calls, g, &op, &g->e);
	if (r < 0) {
		finish(g, r);
		return;
	}
	if (s->type == FILE_WRITE) {
		file_feed(op, s->data.data, s->data.len);
		file_feed_end(op);
	}
}

static struct step *step_add(struct give *g, enum file_type type, const char *path)
{
	struct step *s = &g->step[g->n++];

	assert(g->n <= STEPS_MAX);
	*s = (struct step){ .type = type, .data = BUF_INIT(DIR_SIZE) };
	snprintf(s->path, sizeof(s->path), "%s", path);
	return s;
}

/* One that is there cannot be written, not even by its owner: another takes its place. */
static int plan_file(struct give *g, const struct secret *c, const char *path, struct err *e)
{
	bool there = g->sandbox->state != SANDBOX_MAKING;
	char fresh[sizeof(SECRET_DIR) + SECRET_NAME_SIZE + 8];
	struct step *s;
	int r;

	snprintf(fresh, sizeof(fresh), SECRET_DIR "/.%s.new", c->name);
	if (there)
		step_add(g, FILE_REMOVE, fresh)->optional = true;
	s = step_add(g, FILE_WRITE, there ? fresh : path);
	s->mode = 0400;
	r = secret_read(c, &s->data, e);
	if (there)
		snprintf(step_add(g, FILE_MOVE, fresh)->to, sizeof(s->to), "%s", path);
	return r;
}

static int plan_files(struct give *g, struct err *e)
{
	const struct secret_uses *u = &g->sandbox->request->secrets;
	char path[sizeof(SECRET_DIR) + SECRET_NAME_SIZE + 8];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < u->n; i++) {
		const struct secret *c = secret_any(g->sandbox->service, g->sandbox->tenant, u->use[i].name);
		struct step *s;

		/* One that was deleted: what is there stays, and nothing new comes. */
		if (u->use[i].as != SECRET_FILE || !c || (c->gone && g->sandbox->state != SANDBOX_MAKING))
			continue;
		if (c->gone)
			return err_set(e, WHY_CHANGED_MEANWHILE, -ENOENT, "secret '%s' was deleted in the meantime",
				       c->name);
		snprintf(path, sizeof(path), SECRET_DIR "/%s", c->name);
		r = plan_file(g, c, path, e);
		if (r < 0 || !u->use[i].path || !strcmp(u->use[i].path, path))
			continue;
		s = step_add(g, FILE_SYMLINK, u->use[i].path);
		s->as_root = true;
		memcpy(s->to, path, sizeof(path));
	}
	return r;
}

static int plan_ca(struct give *g, struct err *e)
{
	AUTO(buf_done) struct buf theirs = BUF_INIT(2 * MIB);
	const struct net_conf *net = g->sandbox->service->o.net;
	bool there = g->sandbox->state != SANDBOX_MAKING;
	struct step *s, *image;
	int r;

	if (!g->of->ca_cert || !g->of->ca_fresh)
		return 0;
	/* What the host trusts, and what the administrator has egress trust. */
	r = ca_system(NULL, &theirs, e);
	if ((r == 0 || r == -ENOENT) && net && net->ca[0])
		r = ca_system(net->ca, &theirs, e);
	if (r < 0 && r != -ENOENT)
		return r;
	if (there)
		step_add(g, FILE_REMOVE, CA_FILE)->optional = true;
	s = step_add(g, FILE_WRITE, CA_FILE);
	s->mode = 0444;
	r = ca_bundle(buf_str(&theirs), g->of->ca_cert, &s->data, e);
	if (r < 0 || g->sandbox->request->spec->flags & SPEC_READ_ONLY)
		return r;
	/* For programs with a fixed path. Not every image has the file. */
	image = step_add(g, FILE_WRITE, IMAGE_BUNDLE);
	image->mode = 0644;
	image->as_root = image->optional = true;
	return buf_add(&image->data, s->data.data, s->data.len) < 0 ?
		       err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox") :
		       0;
}

bool secrets_give(struct sandbox *b, secrets_given_fn *fn)
{
	struct give *g;
	int r;

	if (!b->secrets || !needs_dir(b->request) || b->secrets->giving)
		return false;
	g = calloc(1, sizeof(*g));
	if (g)
		g->step = calloc(STEPS_MAX, sizeof(*g->step));
	if (!g || !g->step)
		abort();
	g->sandbox = b;
	g->of = b->secrets;
	g->handle = b->handle;
	g->fn = fn;
	sandbox_ref(b);
	b->secrets->giving = g;
	b->secrets->stale = false;
	r = plan_files(g, &g->e);
	if (r == 0)
		r = plan_ca(g, &g->e);
	if (r < 0)
		finish(g, r);
	else
		run_step(g);
	return true;
}

void secrets_note(struct sandbox *b, const struct who *who)
{
	for (uint32_t i = 0; i < b->request->secrets.n; i++) {
		const struct secret_use *u = &b->request->secrets.use[i];
		const struct secret *c = secret_any(b->service, b->tenant, u->name);

		if (c && u->as != SECRET_MASK)
			secret_note_use(c, who, b->id, secret_as_name(u->as));
	}
}

/* --- what changes while it is there --- */

static void on_refreshed(struct sandbox *b, int r, const struct err *e)
{
	if (r == 0 || b->state != SANDBOX_RUNNING)
		return;
	log_warn("sandbox %s: cannot update its secrets: %s", b->id, e->msg);
	b->secrets->stale = true; /* when it is attached to, or resumed, again */
}

void secrets_refresh(struct sandbox *b)
{
	struct sandbox_secrets *x = b->secrets;

	if (!x || !x->stale || x->giving)
		return;
	if (b->state != SANDBOX_RUNNING || !b->link.poll)
		return; /* later */
	secrets_give(b, on_refreshed);
}

static void change_one(struct sandbox *b)
{
	uint8_t sum[SHA256_SIZE];
	struct mask *m = NULL;
	struct err e = { 0 };

	/* The old values stay masked if the new mask cannot be made. */
	if (make_mask(b, &m, sum, &e) < 0) {
		log_error("sandbox %s: %s", b->id, e.msg);
	} else {
		mask_unref(b->secrets->mask);
		b->secrets->mask = m;
		memcpy(b->secrets->mask_sum, sum, sizeof(sum));
	}
	b->secrets->stale = true;
	secrets_refresh(b);
	if (secret_uses_inject(&b->request->secrets))
		sandbox_net_tell(b);
}

void secrets_changed(struct secret *c)
{
	struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&c->service->sandboxes, &at)))
		if (b->tenant == c->tenant && b->secrets && secret_uses_have(&b->request->secrets, c->name))
			change_one(b);
}

/* --- env --- */

static int add_ca_env(struct buf *text)
{
	static const char *const names[] = { "SSL_CERT_FILE",  "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
					     "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",      "PIP_CERT",
					     "AWS_CA_BUNDLE" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
		r = buf_addf(text, "%s=" CA_FILE, names[i]);
		if (r == 0)
			r = buf_addc(text, '\0');
	}
	return r < 0 ? r : (int)ARRAY_LEN(names);
}

int secrets_env(const struct sandbox *b, struct buf *text, struct err *e)
{
	const struct secret_uses *u = &b->request->secrets;
	int n = 0, r = 0;

	if (b->secrets && b->secrets->ca_cert)
		n = r = add_ca_env(text);
	for (uint32_t i = 0; r >= 0 && i < u->n; i++) {
		const struct secret *c = secret_any(b->service, b->tenant, u->use[i].name);

		if (u->use[i].as != SECRET_ENV || !c || c->gone)
			continue;
		r = buf_addf(text, "%s=", u->use[i].field);
		if (r == 0)
			r = secret_read(c, text, e);
		if (r == 0)
			r = buf_addc(text, '\0');
		n++;
	}
	if (r == -E2BIG || r == -ENOMEM)
		return err_set(e, ERR_EXHAUSTED, r, "no memory for the environment");
	return r < 0 ? r : n;
}

static int begin(struct sandbox *b, const struct sandbox_plan *p, struct err *e)
{
	return secrets_begin(b, p->like, e);
}

static void on_begun(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec)
{
	(void)p;
	secrets_spec(b->request, spec);
}

static int load(struct sandbox *b, const json_t *field, struct err *e)
{
	int r = secrets_begin(b, NULL, e);

	return r < 0 ? r : secrets_found(b, json_string_value(field), e);
}

const struct sandbox_part secret_part = {
	.name = "secret",
	.check = secrets_check,
	.begin = begin,
	.begun = on_begun,
	.prepare = secrets_give,
	.noted = secrets_note,
	.reached = secrets_refresh,
	.moved = secrets_move,
	.field = "ca",
	.load = load,
	.store = secrets_store,
	.freed = secrets_free,
};

uint64_t secrets_dev(const struct sandbox *b)
{
	return b->secrets ? b->secrets->dev : 0;
}
