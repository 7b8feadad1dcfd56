/* Writes limits of a network namespace. */
#include "linux/net_limits.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"

#include <fcntl.h>

static const struct {
	const char *path, *value;
} settings[] = {
	/* No copies of sent data in error queues: a time stamp comes with the packet's headers only. */
	{ "/proc/sys/net/core/tstamp_allow_data", "0" },
	{ "/proc/sys/net/core/somaxconn", "1024" },
	{ "/proc/sys/net/core/optmem_max", "65536" },
	{ "/proc/sys/net/ipv4/tcp_max_tw_buckets", "4096" },
	/* Three times what the other end may hold back: a copy of a connection makes room for all of that (memory/socket_guard.c). */
	{ "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456" },
	{ "/proc/sys/net/ipv4/tcp_wmem", "4096 16384 2097152" },
};

void net_limits_set(void)
{
	static unsigned said; /* a bit for each */

	for (unsigned i = 0; i < ARRAY_LEN(settings); i++) {
		int r = fd_put(AT_FDCWD, settings[i].path, settings[i].value);

		/* Older kernels do not have all of them. */
		if (r < 0 && r != -ENOENT && !(__atomic_fetch_or(&said, 1U << i, __ATOMIC_RELAXED) & 1U << i))
			log_info("%s cannot be set to \"%s\": errno %d", settings[i].path, settings[i].value, -r);
	}
}
