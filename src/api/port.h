/*
 * Servers inside sandboxes, reached through the daemon: by path, /v1/sandboxes/{id}/ports/{port}/rest, or by host,
 * {port}-{id}.{ports_domain}. Servers inside are hostile to the daemon, and to other pages of its origin in a browser.
 */
#pragma once
#include "api/api.h"
#include "http/answer.h"
#include "service/port/port.h"

#define PORT_NAME_MAX 64
#define PORT_COOKIE "cloche_port"
#define PORT_PARAMETER "cloche_token"
#define PORT_HEADER "X-Cloche-Port-Token"

/* --- port_place.c: the sandbox and port that a request is for --- */
struct port_place {
	bool hosted; /* by host: all paths are the server's own */
	uint16_t number;
	char sandbox[PORT_NAME_MAX + 1]; /* id or name */
	const char *path; /* the path that the server gets, from its first slash on; within the request */
	char prefix[PORT_NAME_MAX + 48]; /* the part of the path before ->path: "" by host */
};
/* Whether the request is for a server inside. @domain "": only by path. */
bool port_place(const char *domain, const struct http_req *q, struct port_place *ret);

/* A request that is forwarded; see port_proxy.c. */
struct port_pass {
	struct sandbox *sandbox; /* referenced and in use */
	bool our_token; /* the Authorization header held an API token */
	bool by_query; /* the query contained a valid token */
	char token[TOKEN_TEXT_MAX]; /* the token in the query */
};

/* --- port_access.c: authorization --- */
/* -errno: the request has been answered. On success *ret is filled in. */
int port_enter(struct api *a, struct http_req *q, const struct port_place *p, struct port_pass *ret);
/* Answers a request that brought a token in its query: with a cookie, and the same address without it. */
void port_give_cookie(struct http_req *q, const struct port_place *p, const char *token);

/* --- port_head.c: heads as they are forwarded --- */
/* Writes the request's head for the server. -E2BIG. */
int port_head_out(const struct http_req *q, const struct port_place *p, const struct port_pass *pass, struct buf *to);
/* Sets the answer's headers for the client: http_set. */
void port_head_in(const struct answer *a, const struct port_place *p, struct http_req *q);
/* Copies a query without the token's parameter into @to (@size). Returns its length, 0 when nothing is left. */
size_t port_query_rest(const char *query, char *to, size_t size);
/* The value of the token's parameter, or of its cookie in a Cookie header. False when it is missing, or too long. */
bool port_query_token(const char *query, char to[TOKEN_TEXT_MAX]);
bool port_cookie_token(const char *cookies, char to[TOKEN_TEXT_MAX]);

/* --- port_proxy.c --- */
/* Forwards a request for which port_place() is true. */
void port_proxy(struct api *a, struct http_req *q);
/* Connects to the port itself; the call's sandbox has been found. Takes the call over. */
void port_tunnel(struct call *c, uint16_t number);
