/* Asks cloche-devices before a create, in a worker. */
#include "service/device/ahead.h"
#include "base/base.h"
#include "service/device/device.h"
#include "service/sandbox/request.h"
#include "service/struct.h"

struct device_ahead {
	struct device_ahead *next; /* the first one is asked for */
	uv_work_t work;
	struct service *s;
	struct who who;
	struct sandbox_request *request;
	struct sandbox_creation creation;
	struct devices_from from;
	struct device_found found;
};

static void begin(struct service *s);

static void finish(struct device_ahead *a)
{
	struct service *s = a->s;

	s->device_found = &a->found;
	a->creation.create(s, &a->who, a->request, a->creation.fn, a->creation.arg);
	s->device_found = NULL;
	s->device_ahead = a->next;
	device_names_donep(&a->found.asked);
	device_list_done(&a->found.list);
	free(a);
	begin(s);
}

static void plan_work(uv_work_t *work)
{
	struct device_ahead *a = work->data;

	a->found.plan_r = devices_ask(&a->from, a->found.planned, a->found.nplanned, &a->found.plan, &a->found.plan_e);
}

static void plan_done(uv_work_t *work, int status)
{
	struct device_ahead *a = work->data;

	if (status < 0)
		a->found.nplanned = 0;
	finish(a);
}

static void list_work(uv_work_t *work)
{
	struct device_ahead *a = work->data;

	a->found.list_r = device_list_load(&a->s->o, &a->found.asked, &a->found.list, &a->found.list_e);
}

/* What the request gets of that is found out once more when it is created: others may have been quicker. */
static void list_done(uv_work_t *work, int status)
{
	struct device_ahead *a = work->data;
	const struct sandbox_spec *spec = a->request->spec;
	struct err e;

	a->found.listed = status == 0;
	if (a->found.listed && a->found.list_r == 0 &&
	    devices_pick(a->s, a->who.tenant, &a->found.list, a->request, &e) == 0) {
		memcpy(a->found.planned, spec->device, spec->ndevices * sizeof(*spec->device));
		a->found.nplanned = spec->ndevices;
		if (uv_queue_work(a->s->loop, &a->work, plan_work, plan_done) == 0)
			return;
		a->found.nplanned = 0;
	}
	finish(a);
}

/* Asks for the first that waits, which needs to know of all that was given by now. */
static void begin(struct service *s)
{
	struct device_ahead *a = s->device_ahead;
	struct err e;

	if (a && (devices_need(s, a->request, &a->found.asked, &e) < 0 ||
		  uv_queue_work(s->loop, &a->work, list_work, list_done) < 0))
		list_done(&a->work, UV_ECANCELED);
}

bool device_ahead(struct service *s, const struct who *who, struct sandbox_request *w, const struct sandbox_creation *c)
{
	struct device_ahead *a, **last = &s->device_ahead;

	/* It was asked for, or nothing needs to be. */
	if ((s->device_found && s->device_found->request == w) || !devices_asked(s, who->tenant, w))
		return false;
	a = calloc(1, sizeof(*a));
	if (!a)
		return false;
	*a = (struct device_ahead){
		.s = s, .who = *who, .request = w, .creation = *c, .from = devices_source(s, w), .found.request = w
	};
	a->work.data = a;
	while (*last)
		last = &(*last)->next;
	*last = a;
	if (s->device_ahead == a)
		begin(s);
	return true;
}
