/* The rights that cloche-layers gives up before it looks at the first file. */
#pragma once

enum rights_role {
	RIGHTS_DIFF, /* reads, as a user that owns nothing; writes to open descriptors */
	RIGHTS_CHECK, /* like DIFF; also sends messages and starts threads */
	RIGHTS_MAKE, /* like CHECK; also makes and changes files below one folder */
};

/*
 * RIGHTS_DIFF opens no file for writing. The other roles reach only what they have open: if that is in detached mounts,
 * no path leads out of it. A process for which this fails must do nothing more.
 */
int rights_drop(enum rights_role role);
