/* Removes a folder with all its content. */
#include "layers/tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/walk.h"

#include <fcntl.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static int remove_entry(struct walk *w, const char *name)
{
	int r = sys_unlinkat(w->fd, name, 0);

	return r == -EISDIR ? walk_down(w, name) : r == -ENOENT ? 0 : r;
}

static int remove_once(int parent, const char *name)
{
	int dir = sys_openat(parent, name, FOLDER, 0), r;
	struct walk w;

	if (dir == -ENOTDIR || dir == -ELOOP)
		return sys_unlinkat(parent, name, 0);
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	r = walk_begin(&w, dir, false);
	while (r == 0) {
		const char *at = walk_next(&w);

		if (at) {
			r = remove_entry(&w, at);
		} else if (w.depth == 1) {
			break;
		} else {
			r = walk_up(&w);
			if (r == 0)
				r = sys_unlinkat(w.fd, walk_name(&w), AT_REMOVEDIR);
		}
	}
	walk_done(&w);
	return r == 0 ? sys_unlinkat(parent, name, AT_REMOVEDIR) : r;
}

int tree_remove(int parent, const char *name)
{
	int r = remove_once(parent, name);

	/*
	 * A short lack of memory or descriptors is no reason to leave the folder behind, so a failure is retried. What
	 * is removed already stays removed.
	 */
	for (unsigned i = 0; r < 0 && i < 2; i++)
		r = remove_once(parent, name);
	return r;
}
