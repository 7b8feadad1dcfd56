/* Finds the word that is closest to a mistyped one. */
#include "base/near.h"
#include "base/base.h"

#define NEAR_MAX 32 /* characters of a word that is compared */

/* Names that other programs use for a command. A word may have several meanings: the first one that is known counts. */
/* clang-format off */
static const struct {
	const char *word, *ours;
} usual[] = {
	{ "ttl", "timeout" },	      { "expires", "timeout" },	      { "expires_in", "timeout" },  { "lifetime", "timeout" },
	{ "mem", "memory" },	      { "ram", "memory" },	      { "memory_mb", "memory" },    { "vcpus", "cpus" },
	{ "cores", "cpus" },	      { "storage_size", "disk" },     { "processes", "pids" },	    { "command", "cmd" },
	{ "command", "shell" },	      { "argv", "cmd" },	      { "args", "cmd" },	    { "directory", "cwd" },
	{ "environment", "env" },     { "envs", "env" },	      { "labels", "metadata" },	    { "tags", "metadata" },
	{ "cwd", "workdir" },	      { "working_dir", "workdir" },   { "workdir", "cwd" },	    { "dir", "cwd" },
	{ "volumes", "mounts" },      { "binds", "mounts" },	      { "detach", "background" },   { "terminal", "tty" },
	{ "input", "stdin" },	      { "idle_timeout", "idle" },     { "snapshot", "checkpoint" }, { "base", "image" },
	{ "tier", "isolation" },      { "volume", "mount" },	      { "net", "network" },	    { "gpus", "gpu" },
	{ "memory", "limits" },	      { "cpus", "limits" },	      { "disk", "limits" },	    { "pids", "limits" },
	{ "timeout_ms", "timeout" },  { "timeoutMs", "timeout" },     { "env_vars", "env" },	    { "envVars", "env" },
	{ "allow_internet_access", "network" }, { "allowInternetAccess", "network" }, { "block_network", "network" },
	{ "list", "ls" }, { "remove", "rm" }, { "delete", "rm" }, { "show", "inspect" }, { "load", "import" }, { "save", "export" },	    { "entry_point", "entrypoint" },
};

/* Options of `docker run` and its like that have no option of the same meaning here, or one of another name. */
static const struct {
	const char *option, *use;
} foreign[] = {
	{ "-v", "folders are mounted with --mount SRC:DST[:ro]" },
	{ "-w", "the working folder is --workdir DIR; of `cloche exec` and `cloche shell`, --cwd DIR" },
	{ "-u", "the user is --user NAME" },
	{ "-m", "the memory limit is --memory SIZE" },
	{ "-p", "a server inside is reached with `cloche port-forward SANDBOX PORT`, and needs no option" },
	{ "--publish", "a server inside is reached with `cloche port-forward SANDBOX PORT`, and needs no option" },
	{ "-d", "`cloche create` makes a sandbox that stays, `cloche exec -d` runs a command in its background" },
	{ "--detach", "`cloche create` makes a sandbox that stays, `cloche exec -d` runs a command in its background" },
	{ "--name", "`cloche create --name NAME` makes a sandbox that stays and has a name" },
	{ "--rm", "`cloche run` always removes its sandbox; others are removed by `cloche rm`, or after --ttl TIME" },
	{ "--env-file", "variables are given with -e NAME=VALUE" },
	{ "--privileged", "a sandbox never has more capabilities than docs/differences.md lists" },
	{ "--cap-add", "a sandbox never has more capabilities than docs/differences.md lists" },
};
/* clang-format on */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Letters to add, take away, change, or swap with the next one. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned row[3][NEAR_MAX + 1];

	for (size_t k = 0; k <= nb; k++)
		row[1][k] = (unsigned)k;
	for (size_t i = 1; i <= na; i++) {
		unsigned *now = row[(i + 1) % 3], *last = row[i % 3], *before = row[(i + 2) % 3];

		now[0] = (unsigned)i;
		for (size_t k = 1; k <= nb; k++) {
			now[k] = least(least(last[k], now[k - 1]) + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				now[k] = least(now[k], before[k - 2] + 1);
		}
	}
	return row[(na + 1) % 3][nb];
}

static const char *usual_word(const char *word, const char *const *words, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(usual); i++)
		for (size_t k = 0; k < n && !strcmp(usual[i].word, word); k++)
			if (!strcmp(usual[i].ours, words[k]))
				return words[k];
	return NULL;
}

const char *near_word(const char *word, const char *const *words, size_t n)
{
	const char *best = usual_word(word, words, n);
	size_t len = strlen(word);
	unsigned most = len < 3 ? 0 : len < 6 ? 1 : 2;

	if (best || len > NEAR_MAX)
		return best;
	for (size_t i = 0; i < n; i++) {
		size_t other = strlen(words[i]);
		unsigned d = other > NEAR_MAX ? NEAR_MAX : distance(word, len, words[i], other);

		if (d && d <= most && (!best || d < distance(word, len, best, strlen(best))))
			best = words[i];
	}
	return best;
}

const char *near_option(const char *option)
{
	size_t n = strcspn(option, "=");

	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		if (strlen(foreign[i].option) == n && !strncmp(foreign[i].option, option, n))
			return foreign[i].use;
	return NULL;
}
