/*
 * Folders of the writable layer alone. Of a merged folder, each open that sees it changed keeps a list of all its names, in kernel
 * memory that no limit counts, and each call in it looks into all layers. A folder that only the writable layer has is read as it is.
 * So the folders where programs write are made there before the overlay is mounted, with overlay's mark that nothing is below:
 * those that are folders below and empty, with the same owner, mode and times. Nothing in the sandbox sees a difference.
 */
#pragma once

#define UNMERGED_LAYERS 64

struct unmerged {
	int upper; /* the writable layer's root: new, and not written by any other process */
	const int *lower; /* what is below, the topmost first, with the sandbox's owners; at most UNMERGED_LAYERS */
	int n;
	const char *opaque; /* the mark's name */
};

/* @path: from the root. 0 also when the folder stays merged: it is not there, not empty, or cannot be made the same. */
int unmerged_make(const struct unmerged *u, const char *path);
