/* Images and their layers are kept, replaced by name, and go with their tenant. */
#include "base/base.h"
#include "base/test.h"
#include "store/db.h"

#include <unistd.h>

static int see_image(void *arg, const struct image_row *x)
{
	char *text = arg;

	snprintf(text + strlen(text), 256 - strlen(text), "%s/%s=%s,%s,%d,%llu ", x->tenant, x->name, x->chain, x->user,
		 x->public, (unsigned long long)x->size);
	return 0;
}

static int see_layer(void *arg, const struct image_layer_row *x)
{
	char *text = arg;

	snprintf(text + strlen(text), 256 - strlen(text), "%s<%s:%s ", x->chain, x->parent, x->layers);
	return 0;
}

static int see_step(void *arg, const struct build_cache_row *x)
{
	char *text = arg;

	snprintf(text + strlen(text), 256 - strlen(text), "%s:%s ", x->key, x->chain);
	return 0;
}

TEST(images_are_replaced_by_name_and_go_with_their_tenant)
{
	const struct tenant_row t = { .id = "t", .number = 1, .created_ns = 1 };
	struct image_row i = { .tenant = "t",
			       .name = "a:1",
			       .digest = "d",
			       .config = "{}",
			       .chain = "c",
			       .user = "0:0",
			       .source = "{}",
			       .size = 7 };
	struct image_layer_row l = { .chain = "c", .parent = "", .layers = "x y", .diff = "d", .blob = "b" };
	struct build_cache_row s = { .tenant = "t", .key = "k", .chain = "c", .config = "{}" };
	char path[64], text[256] = "", more[80];
	struct db *d = NULL;
	struct err e = { 0 };

	snprintf(path, sizeof(path), "/tmp/cloche-images-test-%d.db", (int)getpid());
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK_EQ(images_put(d, &i, &e), -EEXIST); /* no such tenant */
	CHECK(tenants_put(d, &t, &e) == 0 && images_put(d, &i, &e) == 0 && image_layers_put(d, &l, &e) == 0 &&
	      build_cache_put(d, &s, &e) == 0);
	i.chain = "d";
	i.public = true;
	CHECK_EQ(images_put(d, &i, &e), 0);
	i.name = "b:1";
	CHECK_EQ(images_put(d, &i, &e), 0);
	l.chain = "d";
	l.parent = "c";
	CHECK(image_layers_put(d, &l, &e) == 0 && db_commit(d, &e) == 0);
	db_close(TAKE_PTR(d));
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK(images_each(d, see_image, text, &e) == 0 && image_layers_each(d, see_layer, text, &e) == 0 &&
	      build_cache_each(d, see_step, text, &e) == 0);
	CHECK_STR(text, "t/a:1=d,0:0,1,7 t/b:1=d,0:0,1,7 c<:x y d<c:x y k:c ");
	CHECK(images_delete(d, "t", "a:1", &e) == 0 && image_layers_delete(d, "c", &e) == 0 &&
	      build_cache_delete(d, "t", "k", &e) == 0);
	CHECK_EQ(tenants_delete(d, "t", &e), 0);
	text[0] = 0;
	CHECK(images_each(d, see_image, text, &e) == 0 && build_cache_each(d, see_step, text, &e) == 0);
	CHECK_STR(text, "");
	CHECK_EQ(image_layers_each(d, see_layer, text, &e), 0);
	CHECK_STR(text, "d<c:x y ");
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	for (unsigned n = 0; n < 3; n++) {
		snprintf(more, sizeof(more), "%s%s", path, (const char *const[]){ "", "-wal", "-shm" }[n]);
		unlink(more);
	}
}
