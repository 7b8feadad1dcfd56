/* Gives devices to sandboxes. */
#include "service/device/device.h"
#include "base/base.h"
#include "service/access/struct.h"
#include "service/device/ahead.h"
#include "service/struct.h"
#include "warden/policy.h"

#include <ctype.h>

bool device_may(const struct service_opts *o, const char *tenant, const char *name)
{
	for (unsigned i = 0; i < o->ndevices; i++)
		if ((!*o->device_tenant[i] || !strcmp(o->device_tenant[i], tenant)) &&
		    policy_device_fits(o->device_name[i], name))
			return true;
	return false;
}

/* One that is being made, or that runs: what was given to others is theirs when it ends, sleeps or is lost. */
static bool has_devices(const struct sandbox *b)
{
	return b->request && b->request->spec->ndevices &&
	       (b->handle || b->state == SANDBOX_MAKING || b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED);
}

/* The sandbox that has @item and one of both is a GPU, by whatever name, so that @request cannot have it. NULL: it is free. */
static const struct sandbox *taken_by(struct service *s, const struct device_list *l, const struct device_item *item,
				      const struct sandbox_request *request)
{
	const struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at))) {
		if (b->request == request || b == request->replaces || !has_devices(b) ||
		    (request->gpus_shared && b->request->gpus_shared))
			continue;
		for (uint32_t i = 0; i < b->request->spec->ndevices; i++) {
			const struct device_item *other = device_list_find(l, b->request->spec->device[i]);

			if (other && (item->gpu || other->gpu) && device_items_meet(item, other))
				return b;
		}
	}
	return NULL;
}

static int add(struct sandbox_request *w, const char *name, struct err *e)
{
	struct sandbox_spec *s = w->spec;

	if (s->ndevices == DEVICE_NAMES)
		return err_set(e, WHY_BAD_FIELD, -E2BIG, "at most %d devices", DEVICE_NAMES);
	snprintf(s->device[s->ndevices++], DEVICE_NAME, "%s", name);
	w->ngpus++;
	return 0;
}

static bool is_chosen(const struct device_list *l, const struct sandbox_request *w, const struct device_item *item)
{
	for (uint32_t i = 0; i < w->spec->ndevices; i++) {
		const struct device_item *other = device_list_find(l, w->spec->device[i]);

		if (other && device_items_meet(item, other))
			return true;
	}
	return false;
}

/* @count GPUs that are free and allowed, or all that are allowed (0). */
static int choose_any(struct service *s, const struct tenant *t, const struct device_list *l, struct sandbox_request *w,
		      unsigned count, struct err *e)
{
	unsigned n = 0, taken = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < l->n && (!count || n < count); i++) {
		const struct device_item *item = &l->item[i];
		const size_t len = strlen(item->name);

		if (!item->gpu || !item->listed || item->problem[0] || !device_may(&s->o, t->id, item->name) ||
		    (len > 4 && !strcmp(item->name + len - 4, "=all")) || is_chosen(l, w, item))
			continue;
		if (count && taken_by(s, l, item, w)) {
			taken++;
			continue;
		}
		r = add(w, item->name, e);
		n++;
	}
	if (r < 0 || (n && n >= count))
		return r;
	if (taken) {
		err_set(e, WHY_DEVICE_TAKEN, -EBUSY, "gpus '%s': %u free, %u taken by other sandboxes", w->gpus, n,
			taken);
		err_remedy(
			e,
			"try again later, delete a sandbox that has one, or share: \"gpus_shared\": true in all that use it");
		return -EBUSY;
	}
	err_set(e, WHY_DEVICE_MISSING, -ENOENT, "gpus '%s': this machine has %u that tenant '%s' may have", w->gpus, n,
		t->id);
	err_remedy(
		e,
		"`cloche doctor` on the host lists GPUs; an administrator allows them with allow_device = gpu, or %s:gpu",
		t->id);
	return -ENOENT;
}

/* "0", "GPU-…", with commas between them. */
static int choose_named(const struct device_list *l, struct sandbox_request *w, struct err *e)
{
	static const char *const kinds[] = { "nvidia.com/gpu", "amd.com/gpu" };
	char text[sizeof(w->gpus)], name[DEVICE_NAME], *save = NULL;
	int r = 0;

	snprintf(text, sizeof(text), "%s", w->gpus);
	for (char *one = strtok_r(text, ",", &save); r == 0 && one; one = strtok_r(NULL, ",", &save)) {
		unsigned found = 0;

		if (strlen(one) > 60)
			return err_set(e, WHY_BAD_FIELD, -EINVAL, "'gpus': '%.60s…' is not a GPU", one);
		for (size_t k = 0; r == 0 && k < ARRAY_LEN(kinds); k++) {
			snprintf(name, sizeof(name), "%s=%.60s", kinds[k], one);
			if (!device_list_find(l, name) || found++)
				continue;
			r = add(w, name, e);
		}
		if (r == 0 && found != 1) {
			r = err_set(e, WHY_DEVICE_MISSING, -ENOENT,
				    found ? "gpus: '%s': GPUs of two vendors have that name" :
					    "gpus: this machine has no '%s'",
				    one);
			err_remedy(
				e,
				"give `all`, `any`, `any:2`, a number or a UUID; as `devices` with its vendor: nvidia.com/gpu=0");
		}
	}
	return r;
}

static int choose(struct service *s, const struct tenant *t, const struct device_list *l, struct sandbox_request *w,
		  struct err *e)
{
	if (!strcmp(w->gpus, "all"))
		return choose_any(s, t, l, w, 0, e);
	if (!strcmp(w->gpus, "any"))
		return choose_any(s, t, l, w, 1, e);
	if (!strncmp(w->gpus, "any:", 4))
		return choose_any(s, t, l, w, (unsigned)strtoul(w->gpus + 4, NULL, 10), e);
	return choose_named(l, w, e);
}

/* Before anything is read for it. */
static int check_rights(const struct service *s, const struct tenant *t, const struct sandbox_request *w, struct err *e)
{
	bool any = !w->gpus[0];

	for (unsigned i = 0; !any && i < s->o.ndevices; i++)
		any = !*s->o.device_tenant[i] || !strcmp(s->o.device_tenant[i], t->id);
	for (uint32_t i = 0; i < w->spec->ndevices || !any; i++) {
		const char *name = any ? w->spec->device[i] : "gpu";

		if (any && device_may(&s->o, t->id, name))
			continue;
		err_set(e, WHY_HOST_FORBIDS, -EACCES, "device '%s': not one that tenant '%s' may have", name, t->id);
		err_remedy(e,
			   "an administrator can allow it with --allow-device (allow_device = %.60s, or %.32s:%.60s)",
			   name, t->id, name);
		return -EACCES;
	}
	return 0;
}

/* Whether no other sandbox has them. */
static int check_free(struct service *s, const struct tenant *t, const struct device_list *l,
		      const struct sandbox_request *w, struct err *e)
{
	for (uint32_t i = 0; i < w->spec->ndevices; i++) {
		const char *name = w->spec->device[i];
		const struct device_item *item = device_list_find(l, name);
		const struct sandbox *other = item ? taken_by(s, l, item, w) : NULL;

		if (!other)
			continue;
		err_set(e, WHY_DEVICE_TAKEN, -EBUSY, "device '%s': %s has it", name,
			other->tenant == t && other->request->name[0] ? other->request->name : "another sandbox");
		err_remedy(
			e,
			"use \"gpus\": \"any\", try again later, or share: \"gpus_shared\": true in all that use it");
		return -EBUSY;
	}
	return 0;
}

int devices_need(struct service *s, const struct sandbox_request *w, struct device_names *ret, struct err *e)
{
	char text[sizeof(w->gpus)], name[DEVICE_NAME], *save = NULL;
	const struct sandbox *b;
	size_t at = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->spec->ndevices; i++)
		r = device_names_add(ret, w->spec->device[i], e);
	snprintf(text, sizeof(text), "%s", w->gpus);
	for (char *id = strtok_r(text, ",", &save); r == 0 && id; id = strtok_r(NULL, ",", &save)) {
		if (strncmp(id, "GPU-", 4) && strncmp(id, "MIG-", 4))
			continue;
		snprintf(name, sizeof(name), "nvidia.com/gpu=%.70s", id);
		r = device_names_add(ret, name, e);
	}
	while (r == 0 && (b = map_next(&s->sandboxes, &at)))
		for (uint32_t i = 0; r == 0 && b->request != w && has_devices(b) && i < b->request->spec->ndevices; i++)
			r = device_names_add(ret, b->request->spec->device[i], e);
	return r;
}

/* What exists: as it was asked for ahead, unless others were given something since that has other names. */
static int load_list(struct service *s, const struct sandbox_request *w, const struct device_found *f,
		     struct device_list *own, const struct device_list **ret, struct err *e)
{
	AUTO(device_names_done) struct device_names names = { 0 };
	int r = devices_need(s, w, &names, e);

	if (r < 0)
		return r;
	if (!f || !f->listed || !device_names_within(&names, &f->asked)) {
		*ret = own;
		return device_list_load(&s->o, &names, own, e);
	}
	*ret = &f->list;
	if (f->list_r < 0)
		*e = f->list_e;
	return f->list_r;
}

/* A variable that the request or its image has stays; folders of libraries are joined. */
static int put_variable(struct kv *to, const char *text, struct err *e)
{
	const size_t name = strcspn(text, "=") + 1;
	char **more, *item = NULL;

	for (uint32_t i = 0; i < to->n; i++) {
		if (strncmp(to->item[i], text, name))
			continue;
		if (strncmp(text, "LD_LIBRARY_PATH=", name) || strstr(to->item[i] + name, text + name))
			return 0;
		if (asprintf(&item, "%s%s%s", to->item[i], to->item[i][name] ? ":" : "", text + name) < 0)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
		free(to->item[i]);
		to->item[i] = item;
		return 0;
	}
	more = realloc(to->item, ((size_t)to->n + 1) * sizeof(*more));
	if (more)
		to->item = more;
	item = more ? strdup(text) : NULL;
	if (!item)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	to->item[to->n++] = item;
	return 0;
}

struct devices_from devices_source(const struct service *s, const struct sandbox_request *w)
{
	return (struct devices_from){ s->o.devices_program, s->o.cdi, !strcmp(w->spec->image, "host"), false };
}

/* Whether the plan that was asked for ahead is that of the devices that it gets. */
static bool is_planned(const struct device_found *f, const struct sandbox_spec *spec)
{
	bool same = f && f->nplanned == spec->ndevices;

	for (uint32_t i = 0; same && i < spec->ndevices; i++)
		same = !strcmp(f->planned[i], spec->device[i]);
	return same;
}

static int put_env(struct service *s, struct sandbox_request *w, const struct device_found *f, struct err *e)
{
	const bool planned = is_planned(f, w->spec);
	const struct devices_from from = devices_source(s, w);
	AUTO_FREE struct device_plan *own = planned ? NULL : calloc(1, sizeof(*own));
	const struct device_plan *plan = planned ? &f->plan : own;
	int r = planned ? f->plan_r :
		own	? devices_ask(&from, w->spec->device, w->spec->ndevices, own, e) :
			  err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");

	if (planned && r < 0)
		*e = f->plan_e;
	if (r == 0 && device_plan_check(plan) < 0)
		r = err_set(e, ERR_INTERNAL, -EBADMSG, "cloche-devices gave an invalid answer");
	for (uint32_t at = 0; r == 0 && at < plan->env_len; at += (uint32_t)strlen(plan->env + at) + 1)
		r = put_variable(&w->env, plan->env + at, e);
	return r;
}

/* What `gpus` means is found out for each sandbox that is made: copies of it, too. */
static bool has_any(struct sandbox_request *w)
{
	if (!w->spec->ndevices && !w->gpus[0])
		return false;
	w->spec->ndevices -= w->ngpus;
	w->ngpus = 0;
	return true;
}

bool devices_asked(const struct service *s, const struct tenant *t, struct sandbox_request *w)
{
	struct err e;

	return has_any(w) && !(w->spec->flags & SPEC_TIERS) && check_rights(s, t, w, &e) == 0;
}

int devices_pick(struct service *s, const struct tenant *t, const struct device_list *l, struct sandbox_request *w,
		 struct err *e)
{
	int r = w->gpus[0] ? choose(s, t, l, w, e) : 0;

	if (r == 0)
		r = check_rights(s, t, w, e); /* of what was chosen, too */
	return r == 0 ? check_free(s, t, l, w, e) : r;
}

static int check(struct service *s, const struct tenant *t, struct sandbox_request *w, struct err *e)
{
	const struct device_found *f = s->device_found && s->device_found->request == w ? s->device_found : NULL;
	AUTO(device_list_done) struct device_list own = { 0 };
	const struct device_list *l = NULL;
	int r;

	if (!has_any(w))
		return 0;
	if (f && t->gone)
		return err_set(e, WHY_CHANGED_MEANWHILE, -ESRCH, "tenant '%s' was deleted in the meantime", t->id);
	if (w->spec->flags & SPEC_TIERS) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "devices: only a container can have them");
		err_remedy(e, "use isolation \"container\"");
		return -EOPNOTSUPP;
	}
	r = check_rights(s, t, w, e);
	if (r == 0)
		r = load_list(s, w, f, &own, &l, e);
	if (r == 0)
		r = devices_pick(s, t, l, w, e);
	if (r == 0)
		w->gpu_count = device_list_gpus(l, w->spec->device, w->spec->ndevices);
	return r == 0 ? put_env(s, w, f, e) : r;
}

int devices_refuse_memory(const struct sandbox *b, struct err *e)
{
	const struct sandbox_spec *s = b->request->spec;

	if (!s->ndevices)
		return 0;
	err_set(e, WHY_CANNOT_CARRY, -EOPNOTSUPP,
		"it has %s%s: what processes have in a device, as the memory of a GPU, cannot be saved", s->device[0],
		s->ndevices > 1 ? " and other devices" : "");
	err_remedy(e, "save its files alone: leave `memory` out");
	return -EOPNOTSUPP;
}

/* --- its row: how many GPUs it has, and which it was given --- */

static void store(struct sandbox *b, struct json *j)
{
	const struct sandbox_spec *s = b->request->spec;

	if (!b->request->gpu_count)
		return;
	jout_array(j, device_part.field);
	jout_u64(j, NULL, b->request->gpu_count);
	for (uint32_t i = s->ndevices - b->request->ngpus; i < s->ndevices; i++)
		jout_str(j, NULL, s->device[i]);
	jout_end(j);
}

static int load(struct sandbox *b, const json_t *field, struct err *e)
{
	struct sandbox_request *w = b->request;

	for (size_t i = 0; field && i < json_array_size(field); i++) {
		const json_t *one = json_array_get(field, i);
		const char *name = json_string_value(one);
		int r;

		if (i == 0 && json_is_integer(one)) {
			w->gpu_count = (uint32_t)json_integer_value(one);
			continue;
		}
		r = name && strlen(name) < DEVICE_NAME && w->gpus[0] ?
			    add(w, name, e) :
			    err_set(e, ERR_INTERNAL, -EBADMSG, "its devices cannot be read");

		if (r < 0)
			return r;
	}
	/* Rows of earlier versions have no number. */
	for (uint32_t i = 0; !json_is_integer(json_array_get(field, 0)) && i < w->spec->ndevices; i++)
		w->gpu_count += strstr(w->spec->device[i], "/gpu=") != NULL;
	return 0;
}

const struct sandbox_part device_part = {
	.name = "device", .ahead = device_ahead, .check = check, .field = "gpus_given", .store = store, .load = load
};
