/* Any bytes as QEMU's answers, and as an object: nothing is read outside them, a member is inside, waiting never begins. */
#include "vm/vmm/qmp.h"
#include "base/base.h"

#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "QMP", "return", "error", "event", "id", "" };
	AUTO_FREE char *text = malloc(size + 1);
	char version[QMP_VERSION];
	struct qmp q;
	int fd[2];

	if (!text || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0 || qmp_init(&q, fd[0]) < 0)
		abort();
	memcpy(text, data, size);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *at = NULL;
		size_t n = qmp_member(text, size, keys[i], &at);

		if (n && (at < text || n > size || at + n > text + size))
			abort();
	}
	/* The other end is closed: whatever is asked is answered by what came, or lost. */
	if (send(fd[1], data, size < QMP_LINE ? size : QMP_LINE, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 && size % 2)
		qmp_drain(&q);
	shutdown(fd[1], SHUT_WR);
	qmp_greet(&q, version, NULL);
	qmp_wait_migration(&q, NULL);
	qmp_done(&q);
	close(fd[0]);
	close(fd[1]);
	return 0;
}
