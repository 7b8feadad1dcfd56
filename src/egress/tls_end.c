/* One TLS connection of a terminated stream, over memory. */
#include "egress/tls_end.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/base.h"

int tls_end_open(struct tls_end *s, struct loop *l, int fd, SSL *ssl)
{
	const int one = 1;
	int r;

	s->f.fd = fd;
	if (ssl && SSL_set_fd(ssl, fd) != 1) {
		s->f.fd = -1;
		return -ENOMEM;
	}
	/* Both directions with one event: whatever happened, everything that may make progress is tried. */
	r = loop_add(l, &s->f, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	if (r < 0) {
		s->f.fd = -1;
		return r;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	s->ssl = ssl;
	s->ready = !ssl;
	return 0;
}

void tls_end_close(struct tls_end *s, struct loop *l, bool reset)
{
	struct linger linger = { .l_onoff = reset, .l_linger = 0 };

	SSL_free(TAKE_PTR(s->ssl));
	if (s->f.fd < 0)
		return;
	(void)setsockopt(s->f.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	loop_close(l, &s->f);
}

/* What OpenSSL's return value means here; 0: the end. */
static ssize_t outcome(struct tls_end *s, int r)
{
	int saved = errno, why = SSL_get_error(s->ssl, r);

	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	if (why == SSL_ERROR_ZERO_RETURN)
		return 0;
	if (why == SSL_ERROR_SYSCALL)
		return saved ? -saved : -EPIPE;
	if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return -EPIPE;
	return -EPROTO;
}

int tls_end_shake(struct tls_end *s)
{
	ssize_t n;
	int r;

	if (s->ready || s->f.fd < 0)
		return 0;
	ERR_clear_error();
	errno = 0;
	r = SSL_do_handshake(s->ssl);
	if (r == 1) {
		s->ready = true;
		return 1;
	}
	n = outcome(s, r);
	if (n == -EAGAIN)
		return 0;
	return n == -EPROTO ? -EPROTO : -EPIPE;
}

ssize_t tls_end_read(struct tls_end *s, void *data, size_t len)
{
	ssize_t n;

	if (s->ssl) {
		ERR_clear_error();
		errno = 0;
		n = SSL_read(s->ssl, data, (int)len);
		if (n <= 0)
			n = outcome(s, (int)n);
		if (n == -EPIPE) {
			s->torn = true;
			n = 0;
		}
	} else {
		n = recv(s->f.fd, data, len, 0);
		if (n < 0)
			n = -errno;
	}
	if (n == 0)
		s->eof = true;
	return n == -EINTR ? -EAGAIN : n;
}

ssize_t tls_end_write(struct tls_end *s, const void *data, size_t len)
{
	ssize_t n;

	if (s->ssl) {
		ERR_clear_error();
		errno = 0;
		/* A record that was begun is as long as it is, whatever may be sent by now. */
		if (len < s->owed)
			len = s->owed;
		n = SSL_write(s->ssl, data, (int)len);
		s->owed = 0;
		if (n > 0)
			return n;
		n = outcome(s, (int)n);
		if (n == -EAGAIN)
			s->owed = len;
		return n ? n : -EPIPE;
	}
	n = send(s->f.fd, data, len, MSG_NOSIGNAL);
	if (n >= 0)
		return n;
	return errno == EINTR ? -EAGAIN : -errno;
}

void tls_end_shut(struct tls_end *s)
{
	if (s->shut || s->f.fd < 0)
		return;
	s->shut = true;
	if (s->ssl && s->ready) {
		ERR_clear_error();
		(void)SSL_shutdown(s->ssl);
	}
	(void)shutdown(s->f.fd, SHUT_WR);
}
