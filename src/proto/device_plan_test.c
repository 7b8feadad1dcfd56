#include "proto/device_plan.h"
#include "base/base.h"
#include "base/test.h"

static struct device_plan good(void)
{
	return (struct device_plan){
		.nnodes = 1,
		.nmounts = 1,
		.env_len = 4,
		.env = "A=b",
		.node[0] = { .from = "/dev/dri/card0",
			     .to = "dri/card0",
			     .may = DEVICE_READ,
			     .uid = DEVICE_NO_ID,
			     .gid = 44 },
		.mount[0] = { .from = "/usr/lib/x.so", .to = "/opt/x.so" },
	};
}

#define BAD(change)                                                                                                    \
	do {                                                                                                           \
		struct device_plan p = good();                                                                         \
		change;                                                                                                \
		CHECK_EQ(device_plan_check(&p), -EBADMSG);                                                             \
	} while (0)

TEST(a_plan_with_any_wrong_field_is_refused)
{
	static const char *const paths[] = { "", "dev/x", "/dev/../etc", "/dev//x", "/dev/./x", "/dev/x/", "/", "/.." };
	const struct device_plan whole = good();

	CHECK_EQ(device_plan_check(&whole), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		BAD(snprintf(p.node[0].from, DEVICE_PATH, "%s", paths[i]));
		BAD(snprintf(p.mount[0].from, DEVICE_PATH, "%s", paths[i]));
		BAD(snprintf(p.mount[0].to, DEVICE_PATH, "%s", paths[i]));
	}
	BAD(snprintf(p.node[0].to, DEVICE_PATH, "null"));
	BAD(snprintf(p.node[0].to, DEVICE_PATH, "pts/0"));
	BAD(snprintf(p.node[0].to, DEVICE_PATH, "/dev/x"));
	BAD(snprintf(p.node[0].to, DEVICE_PATH, "a/../b"));
	BAD(memset(p.node[0].to, 'a', DEVICE_PATH));
	BAD(memset(p.mount[0].to, '/', DEVICE_PATH));
	BAD(p.node[0].block = 2);
	BAD(p.node[0].may = 4);
	BAD(p.node[0].uid = 65536);
	BAD(p.node[0].gid = 65536);
	BAD(p.nnodes = DEVICE_NODES + 1);
	BAD(p.nmounts = DEVICE_MOUNTS + 1);
	BAD(p.env_len = DEVICE_ENV + 1);
	BAD(p.env_len = 3);
	BAD(p.nnodes = 2);
}
