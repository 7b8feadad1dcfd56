/* The memory of a container, as cloche-dump has written it into the layer: checks it, and completes it. */
#include "layers/making.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/numbers.h"

#include <unistd.h>

static bool listed(const struct layer_ask *ask, const char *id)
{
	for (unsigned i = 0; i < ask->ancestors; i++)
		if (!strcmp(ask->ancestor[i], id))
			return true;
	return false;
}

int making_memory(struct making *x, const struct layer_ask *ask, struct memory_cuts *ret, struct err *e)
{
	AUTO_CLOSE int meta = memory_open(x->tmp, "meta"), pages = memory_open(x->tmp, "pages");
	int numbers[NUMBERS_SETS], r = meta < 0 ? meta : pages < 0 ? pages : 0;
	struct mem_head head;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open the saved memory");
	r = memory_head(meta, pages, &head, e);
	if (r == 0)
		r = memory_cuts(meta, &head, ret, e);
	/*
	 * After a restore, each process has its own copy of all of its pages: a layer that would not fit into the limit
	 * is refused.
	 */
	if (r == 0)
		r = memory_fits(&head, ask->limit, e);
	/* It may refer only to layers that stay as long as this one does. */
	for (uint32_t n = 1; r == 0 && n < head.page_files; n++)
		if (!listed(ask, head.ancestor[n]))
			r = err_set(e, ERR_INTERNAL, -EBADMSG, "memory image: based on '%s'", head.ancestor[n]);
	if (r == 0)
		r = numbers_write(x->mem, meta, &head, x->ask.joins, numbers, e);
	if (r < 0)
		return r;
	flush_enter(x->flush);
	flush_more(x->flush, pages);
	flush_file_add(x->flush, meta);
	flush_file_add(x->flush, pages);
	for (unsigned n = 0; n < NUMBERS_SETS && numbers[n] >= 0; n++)
		flush_file_add(x->flush, numbers[n]);
	fd_close_many(numbers, NUMBERS_SETS);
	flush_leave(x->flush, x->mem);
	return 0;
}
