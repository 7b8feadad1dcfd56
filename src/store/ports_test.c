/* Ports are kept, and go with their sandbox. */
#include "base/base.h"
#include "base/test.h"
#include "store/db.h"

#include <unistd.h>

static int see(void *arg, const struct port_row *p)
{
	char *text = arg;

	snprintf(text + strlen(text), 128 - strlen(text), "%s:%u,%d,%02x,%llu ", p->sandbox, p->port, p->public,
		 p->token[0], (unsigned long long)p->created_ns);
	return 0;
}

TEST(ports_are_kept_and_go_with_their_sandbox)
{
	struct tenant_row t = { .id = "t", .number = 1, .created_ns = 1 };
	struct sandbox_row b = { .id = "box",
				 .tenant = "t",
				 .name = "n",
				 .state = "running",
				 .spec = "{}",
				 .layers = "",
				 .checkpoint = "",
				 .restored = "" };
	struct port_row p = { .sandbox = "box", .port = 8000, .public = true, .created_ns = 5 };
	char path[64], text[128] = "", more[80];
	struct db *d = NULL;
	struct err e = { 0 };

	snprintf(path, sizeof(path), "/tmp/cloche-ports-test-%d.db", (int)getpid());
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK_EQ(tenants_put(d, &t, &e), 0);
	CHECK_EQ(ports_put(d, &p, &e), -EEXIST); /* no such sandbox */
	CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
	CHECK_EQ(ports_put(d, &p, &e), 0);
	p = (struct port_row){ .sandbox = "box", .port = 65535, .token = { 0xab }, .created_ns = 6 };
	CHECK_EQ(ports_put(d, &p, &e), 0);
	p.port = 8000;
	p.created_ns = 9;
	CHECK_EQ(ports_put(d, &p, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(TAKE_PTR(d));
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK_EQ(ports_each(d, see, text, &e), 0);
	CHECK_STR(text, "box:8000,0,ab,5 box:65535,0,ab,6 ");
	CHECK_EQ(ports_delete(d, "box", 8000, &e), 0);
	CHECK_EQ(ports_delete(d, "box", 8000, &e), 0);
	text[0] = '\0';
	CHECK_EQ(ports_each(d, see, text, &e), 0);
	CHECK_STR(text, "box:65535,0,ab,6 ");
	CHECK_EQ(sandboxes_delete(d, "box", &e), 0);
	text[0] = '\0';
	CHECK_EQ(ports_each(d, see, text, &e), 0);
	CHECK_STR(text, "");
	db_close(d);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(more, sizeof(more), "%s%s", path, (const char *const[]){ "", "-wal", "-shm" }[i]);
		unlink(more);
	}
}
