/*
 * Another key for all secrets. The new key is on the disk before anything is sealed with it, and all rows change in one
 * transaction: after a crash, either the old key opens everything or the new one does, and the next start continues
 * from there.
 */
#include "base/base.h"
#include "base/log.h"
#include "service/secret/struct.h"
#include "service/secret/give.h"

struct rekey {
	struct service *s;
	unsigned values, cas, lost;
};

static int renew(struct rekey *k, const struct secret *c, struct secret_value *v, struct err *e)
{
	AUTO(buf_done) struct buf sealed = BUF_INIT(VAULT_VALUE_MAX + VAULT_OVERHEAD);
	AUTO(vault_wipe) struct buf value = BUF_INIT(VAULT_VALUE_MAX + 1);
	const struct vault_name n = { c->tenant->id, c->name, v->version };
	struct err why = { 0 };
	int r = secret_read_version(c, v, &value, &why);

	if (r < 0) {
		/* A request that needs this secret fails as before; the others must not wait for it. */
		log_error("%s", why.msg);
		k->lost++;
		return 0;
	}
	if (!vault_opened_old(k->s->vault))
		return 0;
	r = vault_seal(k->s->vault, &n, value.data, value.len, &sealed, e);
	if (r == 0)
		r = secret_values_reseal(k->s->db,
					 &(struct secret_value_row){ .tenant = n.tenant,
								     .name = n.name,
								     .version = n.version,
								     .sealed = sealed.data,
								     .len = sealed.len },
					 e);
	if (r < 0)
		return r;
	assert(sealed.len == v->len);
	memcpy(v->sealed, sealed.data, sealed.len);
	k->values++;
	return 0;
}

static int renew_all(struct rekey *k, struct err *e)
{
	struct secret *c;
	struct sandbox *b;
	size_t at = 0;
	int r = 0;

	while (r == 0 && (c = map_next(&k->s->secrets, &at)))
		for (struct secret_value *v = c->values; r == 0 && v; v = v->next)
			r = renew(k, c, v, e);
	at = 0;
	while (r == 0 && (b = map_next(&k->s->sandboxes, &at))) {
		if (!b->secrets || !b->secrets->ca_old)
			continue;
		r = sandbox_store(b, e);
		b->secrets->ca_old = false;
		k->cas++;
	}
	return r;
}

int secrets_rekey(struct service *s, struct err *e)
{
	struct rekey k = { .s = s };
	char path[1100];
	struct json *j;
	int r;

	if (!vault_has_old(s->vault))
		return 0;
	r = renew_all(&k, e);
	if (r == 0 && k.values + k.cas) {
		j = audit_begin(s->audit, &(struct audit_rec){ .kind = "secret.rekey" });
		jout_u64(j, "values", k.values);
		jout_u64(j, "lost", k.lost);
		audit_end(s->audit, NULL);
		r = audit_flush(s->audit, e);
		if (r == 0)
			r = db_commit(s->db, e);
		/*
		 * Out of the write-ahead log: an administrator may delete the old key once the message says that it is
		 * not needed.
		 */
		snprintf(path, sizeof(path), "%s/state.db", s->o.data);
		if (r == 0)
			r = db_checkpoint(path);
		if (r < 0 && !e->msg[0])
			err_sys(e, ERR_INTERNAL, r, "write the store to the disk");
	}
	if (r < 0)
		return err_wrap(e, r, "seal the secrets with the new key");
	if (k.values + k.cas)
		log_warn("%u values of secrets were sealed with the new key", k.values + k.cas);
	if (k.lost)
		log_error("%u values of secrets cannot be decrypted with any known key: keep the old keys", k.lost);
	else
		log_warn("secrets no longer need their old key: remove it (secrets_old_key_command, secrets.key.old, "
			 "or secrets.key beside a command), unless encrypt_memory has encrypted images with it");
	vault_settle(s->vault);
	return 0;
}
