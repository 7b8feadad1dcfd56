/* Prints what there is. */
#include "devices/list.h"
#include "base/base.h"
#include "base/json.h"

#include <unistd.h>

#define LIST_MAX (4 * MIB)

struct listing {
	struct json *j;
	struct catalog *c;
	const struct plan_opts *o;
	struct device_plan *plan;
};

static bool is_gpu(const char *name)
{
	const char *slash = strchr(name, '/');

	return slash && !strncmp(slash, "/gpu=", 5);
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Of a part of a GPU (MIG) its own nodes; of a GPU its node; of others all. */
static bool is_own(const struct device_plan *p, const struct device_node *n)
{
	static const char *const own[] = { "nvidia-caps/", "nvidia", "dri/render" };

	for (size_t k = 0; k < ARRAY_LEN(own); k++)
		for (uint32_t i = 0; i < p->nnodes; i++) {
			char path[DEVICE_PATH + 8];

			snprintf(path, sizeof(path), "/dev/%s", p->node[i].to);
			if (!begins(p->node[i].to, own[k]) || (k == 1 && gpu_node_minor(path) < 0))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", n->to);
			return begins(n->to, own[k]) && (k != 1 || gpu_node_minor(path) >= 0);
		}
	return true;
}

static void print_units(struct json *j, const struct device_plan *p)
{
	jout_array(j, "unit");
	for (uint32_t i = 0; i < p->nnodes; i++) {
		char text[48];

		if (!is_own(p, &p->node[i]))
			continue;
		snprintf(text, sizeof(text), "%c%u:%u", p->node[i].block ? 'b' : 'c', p->node[i].major,
			 p->node[i].minor);
		jout_str(j, NULL, text);
	}
	jout_end(j);
}

static void print_name(struct listing *l, const char *name, const char *file)
{
	AUTO(buf_done) struct buf notes = BUF_INIT(64 * KIB);
	struct plan_opts o = *l->o;
	const char *const names[] = { name };
	struct err e = { 0 };
	int r;

	o.notes = &notes;
	r = plan_make(l->c, names, 1, &o, l->plan, &e);
	jout_object(l->j, NULL);
	jout_str(l->j, "name", name);
	jout_str(l->j, "file", file);
	jout_bool(l->j, "gpu", is_gpu(name));
	if (r == 0)
		print_units(l->j, l->plan);
	else
		jout_str(l->j, "problem", e.msg);
	jout_array(l->j, "left_out");
	for (char *save = NULL, *line = strtok_r(notes.data ? notes.data : (char[]){ "" }, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		jout_str(l->j, NULL, line);
	jout_end(l->j);
	jout_end(l->j);
}

static int print_device(void *arg, const char *kind, const struct catalog_found *f)
{
	char name[640];

	snprintf(name, sizeof(name), "%s=%s", kind, cdi_field(f->device, "name")->text);
	print_name(arg, name, f->file->path);
	return 0;
}

int list_print(struct catalog *c, const struct plan_opts *o, const char *const *more, unsigned n, int fd, struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(LIST_MAX);
	AUTO_FREE struct device_plan *plan = calloc(1, sizeof(*plan));
	struct json j = JSON_INIT(&out);
	struct listing l = { &j, c, o, plan };
	int r = plan ? 0 : -ENOMEM;

	jout_object(&j, NULL);
	jout_array(&j, "devices");
	if (r == 0)
		r = catalog_each(c, print_device, &l);
	for (unsigned i = 0; r == 0 && i < n; i++)
		if (more[i][0] == '/' || catalog_find(c, more[i], &(struct catalog_found){ 0 }, NULL) == -ENOENT)
			print_name(&l, more[i], "");
	jout_end(&j);
	jout_array(&j, "problems");
	for (unsigned i = 0; i < c->n; i++) {
		if (!c->file[i].e.msg[0])
			continue;
		jout_object(&j, NULL);
		jout_str(&j, "file", c->file[i].path);
		jout_str(&j, "problem", c->file[i].e.msg);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	if (r == 0)
		r = jout_done(&j);
	if (r == 0)
		r = buf_addc(&out, '\n');
	if (r == 0)
		r = fd_write_all(fd, out.data, out.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "list devices") : 0;
}

struct text {
	struct buf *out;
	struct catalog *c;
	const struct plan_opts *o;
	struct device_plan *plan;
	unsigned n;
};

static int say_device(void *arg, const char *kind, const struct catalog_found *f)
{
	struct text *t = arg;
	AUTO(buf_done) struct buf notes = BUF_INIT(64 * KIB);
	struct plan_opts o = *t->o;
	char name[640];
	const char *const names[] = { name };
	struct err e = { 0 };

	snprintf(name, sizeof(name), "%s=%s", kind, cdi_field(f->device, "name")->text);
	o.notes = &notes;
	if (t->n++ == 0)
		buf_adds(t->out, "Devices (--gpu, --device):\n");
	if (plan_make(t->c, names, 1, &o, t->plan, &e) < 0)
		return buf_addf(t->out, "  %-46s cannot be used: %s\n", name, e.msg);
	buf_addf(t->out, "  %-46s %u nodes, %u files; %s\n", name, t->plan->nnodes, t->plan->nmounts, f->file->path);
	for (char *save = NULL, *line = strtok_r(notes.data ? notes.data : (char[]){ "" }, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		buf_addf(t->out, "      left out: %s\n", line);
	return 0;
}

int list_text(struct catalog *c, const struct plan_opts *o, int fd, struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(LIST_MAX);
	AUTO_FREE struct device_plan *plan = calloc(1, sizeof(*plan));
	struct text t = { &out, c, o, plan, 0 };
	int r = plan ? catalog_each(c, say_device, &t) : -ENOMEM;

	if (r == 0 && !t.n)
		r = buf_adds(
			&out,
			"Devices (--gpu, --device): no GPU, and no specification in /etc/cdi or /var/run/cdi; nodes can be given by their path.\n");
	for (unsigned i = 0; r == 0 && i < c->n; i++)
		if (c->file[i].e.msg[0])
			r = buf_addf(&out, "  %s cannot be used: %s\n", c->file[i].path, c->file[i].e.msg);
	if (r == 0)
		r = fd_write_all(fd, out.data, out.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "list devices") : 0;
}
