/* Finds files that have more than one name. */
#include "tar/tar.h"
#include "base/base.h"

#define LINKS 65536U /* files with more than one name that are remembered; later ones are copied */

struct links {
	struct {
		uint64_t dev, ino;
		char *name; /* NULL = free */
	} at[LINKS];
	uint32_t n;
};

struct links *links_new(void)
{
	return calloc(1, sizeof(struct links));
}

const char *links_find(struct links *l, uint64_t dev, uint64_t ino, const char *name)
{
	uint32_t i = (uint32_t)((ino * 0x9e3779b97f4a7c15ULL + dev) >> 40) % LINKS;

	while (l->at[i].name) {
		if (l->at[i].dev == dev && l->at[i].ino == ino)
			return l->at[i].name;
		i = (i + 1) % LINKS;
	}
	if (l->n < LINKS / 2) {
		l->at[i].dev = dev;
		l->at[i].ino = ino;
		l->at[i].name = strdup(name);
		l->n += l->at[i].name != NULL;
	}
	return NULL;
}

void links_clear(struct links *l)
{
	for (uint32_t i = 0; l->n && i < LINKS; i++) {
		l->n -= l->at[i].name != NULL;
		free(l->at[i].name);
		l->at[i].name = NULL;
	}
}
