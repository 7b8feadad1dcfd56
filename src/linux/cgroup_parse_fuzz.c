/* Any bytes into every parser; what they promise about their results is checked. */
#include "linux/cgroup_parse.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cgroup_mount m;
	AUTO_FREE char *text = malloc(size + 1), *line = malloc(size ? size : 1);
	char path[64];
	pid_t pids[32];
	uint64_t v = 0;
	size_t n;

	if (!text || !line)
		return 0;
	memcpy(text, data, size);
	memcpy(line, data, size); /* without a NUL at its end, so that reading past it is seen */
	text[size] = '\0';
	if (cgroup_parse_mount(line, size, &m) == 1) {
		const char *below = cgroup_parse_below(m.root, m.point);

		assert((m.version == 1 || m.version == 2) && m.root[0] == '/' && m.point[0] == '/');
		assert(!below || !below[0] || below[0] == '/');
	}
	if (!cgroup_parse_own(text, "memory", path, sizeof(path)) || !cgroup_parse_own(text, "", path, sizeof(path)))
		assert(path[0] == '/' && strlen(path) < sizeof(path) && !strchr(path, '\n'));
	cgroup_parse_kv(text, "max", &v);
	cgroup_parse_io_stat(text);
	cgroup_parse_has(text, "cpu");
	cgroup_parse_swaps(text);
	n = cgroup_parse_pids(line, size, pids, ARRAY_LEN(pids));
	assert(n <= ARRAY_LEN(pids));
	while (n--)
		assert(pids[n] >= 0);
	return 0;
}
