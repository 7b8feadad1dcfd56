/* Makes rows of checkpoints from the manifests of their layers. */
#include "daemon/rebuild.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "service/access/access.h"
#include "tier/tiers.h"

static const struct manifest *find(const struct manifest *all, unsigned n, const char *id)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(all[i].id, id))
			return &all[i];
	return NULL;
}

/* The oldest first. -ENOENT: one is missing. */
static int chain_of(const struct manifest *all, unsigned n, const struct manifest *m, struct buf *ret)
{
	const struct manifest *chain[SPEC_LAYERS];
	unsigned depth = 0;
	int r = 0;

	for (; m && depth < SPEC_LAYERS; m = find(all, n, m->parent)) {
		chain[depth++] = m;
		if (!m->parent[0])
			break;
	}
	if (!m || m->parent[0])
		return -ENOENT;
	for (unsigned i = depth; r == 0 && i-- > 0;)
		r = buf_addf(ret, "%s%s", ret->len ? " " : "", chain[i]->id);
	return r;
}

static int config_of(const struct manifest *m, struct buf *ret)
{
	const char *slash = strrchr(m->image, '/');
	const struct tier_ops *tier = tier_of(m->flags);
	struct json j = JSON_INIT(ret);

	jout_object(&j, NULL);
	jout_str(&j, "image", slash ? slash + 1 : m->image);
	if (tier && tier->flag)
		jout_str(&j, "isolation", tier->name);
	if (m->flags & SPEC_READ_ONLY)
		jout_bool(&j, "read_only", true);
	jout_end(&j);
	return jout_done(&j);
}

struct seek {
	uint64_t number;
	char id[40];
};

static int on_tenant(void *arg, const struct tenant_row *t)
{
	struct seek *x = arg;

	if (t->number == x->number)
		snprintf(x->id, sizeof(x->id), "%s", t->id);
	return 0;
}

/* Number 1 is the one that every daemon begins with. */
static int tenant_of(struct db *d, uint64_t number, struct seek *ret, struct err *e)
{
	struct tenant_row t = { .number = number ? number : 1 };
	int r;

	*ret = (struct seek){ .number = t.number };
	r = tenants_each(d, on_tenant, ret, e);
	if (r < 0 || ret->id[0])
		return r;
	if (t.number == 1)
		snprintf(ret->id, sizeof(ret->id), "%s", TENANT_DEFAULT);
	else
		snprintf(ret->id, sizeof(ret->id), "recovered-%llu", (unsigned long long)t.number);
	t.id = ret->id;
	return tenants_put(d, &t, e);
}

static int put_one(struct db *d, const struct manifest *m, const char *chain, struct err *e)
{
	AUTO(buf_done) struct buf config = BUF_INIT(64 * KIB);
	char name[48];
	struct seek tenant;
	struct checkpoint_row row = {
		.id = m->id,
		.sandbox = m->id,
		.sandbox_name = "recovered",
		.name = name,
		.label = "",
		.metadata = "{}",
		.parent = "",
		.layers = chain,
		.refused = m->meta ? "the list of its execs was lost with the database" : "",
		.size = m->size,
		.memory_size = m->meta + m->pages,
		.files = m->files,
		.created_ns = m->made,
	};
	int r = tenant_of(d, m->tenant, &tenant, e);

	if (r < 0)
		return r;
	if (config_of(m, &config) < 0)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "rebuild");
	snprintf(name, sizeof(name), "recovered-%.6s", m->id + ID_LEN - 6);
	row.tenant = tenant.id;
	row.config = config.data;
	memcpy(row.sum, m->sum, sizeof(row.sum));
	return checkpoints_insert(d, &row, e);
}

static int count_tenant(void *arg, const struct tenant_row *t)
{
	unsigned *n = arg;

	(void)t;
	(*n)++;
	return 0;
}

int rebuild(struct db *d, const struct manifest *layers, unsigned n, struct err *e)
{
	unsigned made = 0, tenants = 0;
	int r = tenants_each(d, count_tenant, &tenants, e);

	if (r < 0 || tenants) /* an API process before this one has done it */
		return r;
	for (unsigned i = 0; r == 0 && i < n; i++) {
		AUTO(buf_done) struct buf chain = BUF_INIT(4 * KIB);

		r = chain_of(layers, n, &layers[i], &chain);
		if (r == -ENOENT) {
			log_warn("recover: layer %s is based on a layer that is missing", layers[i].id);
			r = 0;
			continue;
		}
		r = r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "rebuild") : put_one(d, &layers[i], buf_str(&chain), e);
		made += r == 0;
	}
	if (r == 0)
		r = db_commit(d, e);
	if (r == 0)
		log_warn("recover: there are no notes: %u checkpoints are rebuilt from their layers only, without "
			 "names, limits and processes",
			 made);
	return r;
}
