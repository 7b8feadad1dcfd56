#include "base/base.h"
#include "base/test.h"
#include "store/db.h"

#include <unistd.h>

struct seen {
	unsigned n;
	char text[512];
};

static int see_net(void *arg, const struct net_row *n)
{
	struct seen *s = arg;

	s->n++;
	snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), "%s=%s,%s ", n->sandbox, n->counts,
		 n->observed);
	return 0;
}

static int see_net_name(void *arg, const struct net_name_row *n)
{
	struct seen *s = arg;

	s->n++;
	snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), "%s/%u=%s ", n->sandbox, n->number,
		 n->name);
	return 0;
}

static int see_net_tree(void *arg, const struct net_tree_row *t)
{
	struct seen *s = arg;

	s->n++;
	snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), "%llu=%s ", (unsigned long long)t->id,
		 t->counts);
	return 0;
}

TEST(networks_go_with_their_sandbox_and_trees_stay)
{
	const struct tenant_row tenant = { .id = "t", .number = 1 };
	struct sandbox_row b = {
		.id = "b1", .tenant = "t", .name = "one", .handle = 1, .state = "running", .spec = "{}"
	};
	struct seen s = { 0 }, after = { 0 };
	char path[64], more[80];
	struct err e;

	snprintf(path, sizeof(path), "/tmp/cloche-nets-test-%d.db", (int)getpid());
	{
		AUTO(db_close) struct db *d = NULL;

		CHECK_EQ(db_open(path, &d, &e), 0);
		CHECK_EQ(tenants_put(d, &tenant, &e), 0);
		CHECK_EQ(nets_put(d, &(struct net_row){ "b1", "1", "" }, &e), -EEXIST); /* no such sandbox */
		b.tree = INT64_MAX;
		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		CHECK_EQ(nets_put(d, &(struct net_row){ "b1", "1 2", "x" }, &e), 0);
		CHECK_EQ(nets_put(d, &(struct net_row){ "b1", "3 4", "y" }, &e), 0);
		CHECK_EQ(net_names_put(d, &(struct net_name_row){ "b1", "old.example", 7 }, &e), 0);
		CHECK_EQ(net_names_put(d, &(struct net_name_row){ "b1", "n.example", 7 }, &e), 0);
		CHECK_EQ(net_names_put(d, &(struct net_name_row){ "b1", "m.example", 2 }, &e), 0);
		CHECK_EQ(net_trees_put(d, &(struct net_tree_row){ INT64_MAX, "5" }, &e), 0);
		CHECK_EQ(net_trees_put(d, &(struct net_tree_row){ INT64_MAX, "6" }, &e), 0);
		CHECK_EQ(net_trees_put(d, &(struct net_tree_row){ 3, "7" }, &e), 0);
		CHECK_EQ(net_trees_delete(d, 3, &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	{
		AUTO(db_close) struct db *d = NULL;

		CHECK_EQ(db_open(path, &d, &e), 0);
		CHECK_EQ(nets_each(d, see_net, &s, &e), 0);
		CHECK_EQ(net_names_each(d, see_net_name, &s, &e), 0);
		CHECK_EQ(net_trees_each(d, see_net_tree, &s, &e), 0);
		CHECK_STR(s.text, "b1=3 4,y b1/2=m.example b1/7=n.example 9223372036854775807=6 ");
		CHECK_EQ(sandboxes_delete(d, "b1", &e), 0);
		CHECK_EQ(nets_each(d, see_net, &after, &e), 0);
		CHECK_EQ(net_names_each(d, see_net_name, &after, &e), 0);
		CHECK_EQ(after.n, 0);
		CHECK_EQ(net_names_clear(d, "b1", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		snprintf(more, sizeof(more), "%s%s", path, (const char *const[]){ "", "-wal", "-shm" }[i]);
		unlink(more);
	}
}
