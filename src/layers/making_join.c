/* Lower layers become part of the one in the making. */
#include "layers/making.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/tree.h"

#include <unistd.h>

/* Adds one layer's files below those that are there. They are verified first: damaged files must not get a new sum. */
static int join_layer(struct making *x, const char *id)
{
	const struct tree_copy c = { 0,	       x->tmp,	    &x->links,	x->stop, x->buf,
				     x->flush, x->pipeline, x->digests, false,	 NULL };
	AUTO_CLOSE int dir = sys_openat(x->store, id, MAKING_FOLDER, 0), fs = -1;
	struct manifest m;
	int r = dir < 0 ? dir : manifest_read(dir, id, &m);

	if (r == 0)
		r = manifest_verify(dir, x->stop, &m);
	if (r == 0)
		r = fs = sys_openat(dir, "fs", MAKING_FOLDER, 0);
	for (unsigned n = 0; r >= 0 && n < LAYER_TREES; n++) {
		AUTO_CLOSE int from = sys_openat(fs, layer_trees[n], MAKING_FOLDER, 0), to = -1;

		if (from == -ENOENT)
			continue;
		r = to = from < 0 ? from : sys_openat(x->fs, layer_trees[n], MAKING_FOLDER, 0);
		if (r == -ENOENT) {
			r = tree_make_folder(x->fs, layer_trees[n], &to);
			if (r == 0)
				r = tree_copy(&c, from, to);
		} else if (r >= 0) {
			r = tree_join(&c, from, to);
		}
	}
	return r < 0 ? r : 0;
}

/* Hard links of one layer are independent of those of another. */
int making_join(struct making *x, struct err *e)
{
	int r = 0;

	for (uint32_t n = 0; r == 0 && n < x->ask.joins; n++) {
		r = join_layer(x, x->ask.join[n]);
		fd_close(TAKE_FD(x->links));
		if (r == -EBADMSG)
			return err_set(e, WHY_DAMAGED, r, "layer '%s', which the sandbox is based on, is damaged",
				       x->ask.join[n]);
		if (r == 0)
			r = tree_remove(x->tmp, "links");
	}
	if (r == 0)
		r = tree_mark_whiteouts(x->fs, x->stop);
	return r == 0 || r == -ECANCELED ?
		       r :
		       err_sys(e, making_kind(r), r, "join the layers that the sandbox is based on");
}
