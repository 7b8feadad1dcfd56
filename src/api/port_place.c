/* Finds the sandbox and port that a request is for, by path or by host. */
#include "api/port.h"
#include "base/base.h"

#include <strings.h>

/* A port number such as "8000", up to @end; 0 when it is invalid. */
static uint16_t read_port(const char *text, const char *end)
{
	unsigned v = 0;

	if (text == end || *text == '0' || end - text > 5)
		return 0;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return 0;
		v = v * 10 + (unsigned)(*text - '0');
	}
	return v <= UINT16_MAX ? (uint16_t)v : 0;
}

static bool plain(const char *text, size_t len)
{
	static const char fit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return len && len <= PORT_NAME_MAX && strspn(text, fit) >= len;
}

static bool by_path(const char *path, struct port_place *ret)
{
	static const char before[] = "/v1/sandboxes/", between[] = "/ports/";
	const char *name = path + sizeof(before) - 1, *number, *end;

	if (strncmp(path, before, sizeof(before) - 1) != 0)
		return false;
	end = strchr(name, '/');
	if (!end || strncmp(end, between, sizeof(between) - 1) != 0 || !plain(name, (size_t)(end - name)))
		return false;
	number = end + sizeof(between) - 1;
	*ret = (struct port_place){ .path = strchr(number, '/') };
	if (!ret->path)
		return false;
	ret->number = read_port(number, ret->path);
	if (!ret->number)
		return false;
	memcpy(ret->sandbox, name, (size_t)(end - name));
	memcpy(ret->prefix, path, (size_t)(ret->path - path));
	return true;
}

/* Parses "8000-0000abc….ports.example", with or without the daemon's port. */
static bool by_host(const char *domain, const char *host, const char *path, struct port_place *ret)
{
	size_t label = strcspn(host, "."), all = strcspn(host, ":"), n = strlen(domain);
	const char *dash = memchr(host, '-', label);

	if (all != label + 1 + n || strncasecmp(host + label + 1, domain, n) != 0 || !dash)
		return false;
	*ret = (struct port_place){ .hosted = true, .number = read_port(host, dash), .path = path };
	dash++;
	if (!ret->number || (size_t)(host + label - dash) != ID_LEN)
		return false;
	for (size_t i = 0; i < ID_LEN; i++)
		ret->sandbox[i] = (char)(dash[i] >= 'A' && dash[i] <= 'Z' ? dash[i] | 0x20 : dash[i]);
	return id_valid(ret->sandbox);
}

bool port_place(const char *domain, const struct http_req *q, struct port_place *ret)
{
	const char *host = http_header(q, "host");

	if (*domain && host && by_host(domain, host, http_path(q), ret))
		return true;
	return by_path(http_path(q), ret);
}
