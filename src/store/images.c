/* The tables of images, of the layers that they are made of, and of what steps of builds have made. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column layer_columns[] = {
	COLUMN(struct image_layer_row, chain, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct image_layer_row, parent, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_layer_row, layers, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_layer_row, diff, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_layer_row, blob, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_layer_row, blob_size, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct image_layer_row, size, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct image_layer_row, files, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct image_layer_row, created_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table image_layers_table = {
	.id = TABLE_IMAGE_LAYERS,
	.name = "image_layers",
	.order = "created_ns, chain",
	.one = "a layer of an image",
	.all = "the layers of images",
	.columns = layer_columns,
	.n = ARRAY_LEN(layer_columns),
	.noted = true,
};

DEFINE_PUT(image_layers_put, struct image_layer_row, image_layers_table)

int image_layers_delete(struct db *d, const char *chain, struct err *e)
{
	return rows_drop(d, &image_layers_table, &(struct image_layer_row){ .chain = chain }, e);
}

DEFINE_EACH(image_layers_each, struct image_layer_row, image_layers_table)

/* --- images --- */

static const struct column image_columns[] = {
	COLUMN(struct image_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct image_row, name, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct image_row, digest, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_row, config, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_row, chain, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_row, user, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_row, source, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct image_row, public, COLUMN_FLAG, COLUMN_VALUE),
	COLUMN(struct image_row, size, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct image_row, created_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table images_table = {
	.id = TABLE_IMAGES,
	.name = "images",
	.order = "tenant, name",
	.one = "an image",
	.all = "the images",
	.columns = image_columns,
	.n = ARRAY_LEN(image_columns),
	.noted = true,
};

DEFINE_PUT(images_put, struct image_row, images_table)

int images_delete(struct db *d, const char *tenant, const char *name, struct err *e)
{
	return rows_drop(d, &images_table, &(struct image_row){ .tenant = tenant, .name = name }, e);
}

DEFINE_EACH(images_each, struct image_row, images_table)

/* --- what steps of builds have made: it can be made again, so there are no notes of it --- */

static const struct column cache_columns[] = {
	COLUMN(struct build_cache_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct build_cache_row, key, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct build_cache_row, chain, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct build_cache_row, config, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct build_cache_row, size, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct build_cache_row, used_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

static const struct table build_cache_table = {
	.id = TABLE_BUILD_CACHE,
	.name = "build_cache",
	.order = "used_ns, tenant, key",
	.one = "a step of a build",
	.all = "the steps of builds",
	.columns = cache_columns,
	.n = ARRAY_LEN(cache_columns),
};

DEFINE_PUT(build_cache_put, struct build_cache_row, build_cache_table)

int build_cache_get(struct db *d, const char *tenant, const char *key, char *ret_chain, size_t room,
		    uint64_t *ret_used_ns)
{
	sqlite3_stmt *s;
	int r = q_prepare(d, Q_BUILD_CACHE_GET, "SELECT chain, used_ns FROM build_cache WHERE tenant = ?1 AND key = ?2",
			  &s, NULL);

	if (r < 0)
		return r;
	q_text(s, 1, tenant);
	q_text(s, 2, key);
	r = sqlite3_step(s) == SQLITE_ROW ? 1 : 0;
	if (r > 0) {
		snprintf(ret_chain, room, "%s", q_get_text(s, 0));
		*ret_used_ns = q_get_u64(s, 1);
	}
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return r;
}

int build_cache_delete(struct db *d, const char *tenant, const char *key, struct err *e)
{
	return rows_drop(d, &build_cache_table, &(struct build_cache_row){ .tenant = tenant, .key = key }, e);
}

DEFINE_EACH(build_cache_each, struct build_cache_row, build_cache_table)
