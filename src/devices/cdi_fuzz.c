/* Any bytes as a file of CDI: refused or read, and what is read can be planned. */
#include "base/base.h"
#include "devices/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct catalog c;
	static struct device_plan plan;
	const struct plan_opts o = { .root = "/nowhere" };
	struct err e = { 0 };
	struct tree_doc doc;

	if (tree_parse((const char *)data, size, &doc, &e) < 0) {
		if (!e.msg[0])
			abort();
		return 0;
	}
	if (cdi_check(doc.root, &e) == 0) {
		const struct tree *device = cdi_field(cdi_field(doc.root, "devices")->child, "name");
		char name[700];
		const char *const names[] = { name };

		c.n = 1;
		c.file[0].doc = doc;
		snprintf(name, sizeof(name), "%.300s=%.300s", cdi_field(doc.root, "kind")->text, device->text);
		(void)plan_make(&c, names, 1, &o, &plan, &e);
		if (plan.nnodes > DEVICE_NODES || plan.nmounts > DEVICE_MOUNTS || plan.env_len > DEVICE_ENV)
			abort();
	}
	tree_done(&doc);
	return 0;
}
