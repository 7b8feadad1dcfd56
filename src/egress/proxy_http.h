/*
 * Requests to an HTTP proxy: "CONNECT host:port" or "GET http://host/path". A connection carries one request of the
 * second kind: the client's next one may be for another host, so the end of the answer ends the connection.
 */
#pragma once
#include "base/buf.h"
#include "egress/head.h"

/*
 * YES: ret->connect or ret->absolute; ret->host with its port (80 when an absolute target has none). CONNECT: the bytes
 * behind the head are the tunnel's. NOT: no HTTP. BAD: all else, "GET /" too.
 */
enum look proxy_http_look(const char *data, size_t len, struct head *ret, const char **ret_why);
/*
 * The head of an absolute request as the server is to see it: target "/path", without what is said to proxies only
 * (Proxy-*, Connection, Keep-Alive), with "Connection: close" (or "Upgrade", when it asks for a websocket).
 * -E2BIG, -ENOMEM.
 */
int proxy_http_rewrite(const char *data, const struct head *h, struct buf *out);
