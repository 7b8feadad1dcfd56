/* Any bytes as /etc/passwd and /etc/group, and as the name that is looked up: nothing is read outside them, and what is found can be used. */
#include "base/base.h"
#include "proto/account.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char name[ACCOUNT_TEXT] = "";
	struct account_files in;
	struct account a;
	size_t n, half;
	bool group;

	for (n = 0; n < size && n < sizeof(name) - 1 && data[n] != '\n'; n++)
		name[n] = (char)data[n];
	half = (size - n) / 2;
	in = (struct account_files){
		.passwd = text + n, .group = text + n + half, .passwd_len = half, .group_len = size - n - half
	};
	if (account_find(&in, name, &a, &group) < 0)
		return 0;
	if (!account_id_ok(a.uid) || !account_id_ok(a.gid) || a.ngroups > ACCOUNT_GROUPS ||
	    strlen(a.name) >= ACCOUNT_NAME || strlen(a.home) >= ACCOUNT_HOME)
		abort();
	for (uint32_t i = 0; i < a.ngroups; i++)
		if (!account_id_ok(a.groups[i]))
			abort();
	return 0;
}
