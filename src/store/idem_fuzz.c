#include "store/db.h"
#include "base/base.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct db *opened(void)
{
	const struct tenant_row t = { .id = "t", .number = 1 };
	char folder[] = "/tmp/cloche-fuzz-XXXXXX", path[64], name[80];
	struct db *d = NULL;

	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/db", folder);
	if (db_open(path, &d, NULL) < 0 || tenants_put(d, &t, NULL) < 0 || db_commit(d, NULL) < 0)
		abort();
	/* The open files are enough. */
	unlink(path);
	snprintf(name, sizeof(name), "%s-wal", path);
	unlink(name);
	snprintf(name, sizeof(name), "%s-shm", path);
	unlink(name);
	snprintf(name, sizeof(name), "%s-late", path);
	unlink(name);
	rmdir(folder);
	return d;
}

/* Any key and answer comes back byte for byte, and only under its own key. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct db *d;
	struct idem_row i = { .tenant = "t", .status = 200, .created_ns = 5 }, got;
	char key[256], answer[4096];
	size_t nk;

	if (!d)
		d = opened();
	if (size < 3 || size > sizeof(answer))
		return 0;
	nk = data[0] < size - 1 ? data[0] : size - 1;
	memcpy(key, data + 1, nk);
	key[nk] = '\0';
	memcpy(answer, data + 1 + nk, size - 1 - nk);
	answer[size - 1 - nk] = '\0';
	memcpy(i.body, data, size < 32 ? size : 32);
	i.key = key;
	i.answer = answer;
	assert(idem_put(d, &i, NULL) == 0);
	assert(idem_find(d, "t", key, &got, NULL) == 1);
	assert(!strcmp(got.key, key) && !strcmp(got.answer, answer) && !memcmp(got.body, i.body, 32) &&
	       got.status == 200);
	assert(idem_find(d, "u", key, &got, NULL) == 0);
	if (data[1] & 1) {
		assert(idem_delete(d, "t", key, NULL) == 0);
		assert(idem_find(d, "t", key, &got, NULL) == 0);
	}
	if (data[1] & 2)
		assert(idem_prune(d, 6, NULL) == 0);
	return 0;
}
