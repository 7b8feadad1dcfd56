/* Makes ids from the time and random bytes, and checks them. */
#include "base/id.h"
#include "base/base.h"
#include "base/sys.h"

/* 32 symbols, five bits each, without i, l, o and u, which are misread or spell words. */
static const char symbols[] = "0123456789abcdefghjkmnpqrstvwxyz";
static const char node[] = "0000";

int id_new(char *buf, size_t size)
{
	unsigned char bytes[ID_LEN - ID_NODE_LEN];
	ssize_t n;

	if (size < ID_SIZE)
		return -ENOSPC;
	do {
		n = sys_getrandom(bytes, sizeof(bytes), 0);
	} while (n == -EINTR);
	if (n < 0)
		return (int)n;
	if ((size_t)n != sizeof(bytes))
		return -EIO; /* the kernel never cuts so short a read */
	memcpy(buf, node, ID_NODE_LEN);
	for (size_t i = 0; i < sizeof(bytes); i++)
		buf[ID_NODE_LEN + i] = symbols[bytes[i] & 31];
	buf[ID_LEN] = '\0';
	return 0;
}

bool id_valid(const char *text)
{
	size_t n = 0;

	for (; text[n] && n <= ID_LEN; n++) {
		if (!((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'z')))
			return false;
	}
	return n == ID_LEN;
}
