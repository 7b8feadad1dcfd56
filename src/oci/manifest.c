/* Reads manifests and indexes: see manifest.h. */
#include "oci/manifest.h"
#include "base/base.h"
#include "oci/json.h"

#define DOCKER "application/vnd.docker."
#define REF_NAME "org.opencontainers.image.ref.name"
#define SIZE_MOST (1ULL << 40)

const char *oci_architecture(void)
{
#if defined(__x86_64__)
	return "amd64";
#elif defined(__aarch64__)
	return "arm64";
#elif defined(__riscv)
	return "riscv64";
#else
#error "no name for this processor"
#endif
}

static int refuse(struct err *e, const char *what)
{
	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "the image's manifest %s", what);
}

static int descriptor(const json_t *o, struct oci_descriptor *ret, struct err *e)
{
	const char *type = json_string_value(json_object_get(o, "mediaType"));
	const char *digest = json_string_value(json_object_get(o, "digest"));
	const json_t *size = json_object_get(o, "size");

	if (!type || strlen(type) >= sizeof(ret->type))
		return refuse(e, "has a part without a media type");
	if (!digest || !oci_digest_ok(digest))
		return refuse(e, "has a part without a SHA-256 digest");
	if (!json_is_integer(size) || json_integer_value(size) < 0 || (uint64_t)json_integer_value(size) > SIZE_MOST)
		return refuse(e, "has a part without a size");
	if (json_array_size(json_object_get(o, "urls")))
		return refuse(e, "has a part that only another server has");
	*ret = (struct oci_descriptor){ .size = (uint64_t)json_integer_value(size) };
	memcpy(ret->type, type, strlen(type));
	memcpy(ret->digest, digest, OCI_DIGEST_LEN);
	return 0;
}

static bool is_index(const char *type)
{
	return !strcmp(type, OCI_TYPE_INDEX) || !strcmp(type, DOCKER "distribution.manifest.list.v2+json");
}

static bool is_layer(const char *type)
{
	static const char *const known[] = { OCI_TYPE_LAYER,
					     OCI_TYPE_LAYER_GZIP,
					     OCI_TYPE_LAYER_ZSTD,
					     DOCKER "image.rootfs.diff.tar",
					     DOCKER "image.rootfs.diff.tar.gzip",
					     DOCKER "image.rootfs.diff.tar.zstd" };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(type, known[i]))
			return true;
	return false;
}

static int read_image(const json_t *o, struct oci_manifest *ret, struct err *e)
{
	const json_t *layers = json_object_get(o, "layers");
	int r = descriptor(json_object_get(o, "config"), &ret->config, e);

	if (r < 0)
		return r;
	if (strcmp(ret->config.type, OCI_TYPE_CONFIG) && strcmp(ret->config.type, DOCKER "container.image.v1+json"))
		return err_set(e, WHY_IMAGE_INVALID, -EOPNOTSUPP, "not the image of a filesystem, but '%.100s'",
			       ret->config.type);
	if (!json_is_array(layers) || json_array_size(layers) > OCI_LAYERS_MAX)
		return err_set(e, WHY_IMAGE_INVALID, -E2BIG, "the image has no list of layers, or more than %u",
			       OCI_LAYERS_MAX);
	for (size_t i = 0; i < json_array_size(layers); i++) {
		struct oci_descriptor *d = &ret->layer[ret->nlayers++];

		r = descriptor(json_array_get(layers, i), d, e);
		if (r < 0)
			return r;
		if (!is_layer(d->type))
			return err_set(e, WHY_IMAGE_INVALID, -EOPNOTSUPP,
				       "layer %zu of the image has an unsupported type: '%.100s'", i + 1, d->type);
	}
	return 0;
}

static void add_name(struct oci_manifest *m, const char *os, const char *arch, const char *variant)
{
	size_t n = strlen(m->names);

	snprintf(m->names + n, sizeof(m->names) - n, "%s%.16s/%.16s%s%.8s", n ? ", " : "", os, arch, variant ? "/" : "",
		 variant ? variant : "");
}

/* Whether the entry @o is for this machine. An entry of an OCI layout may have no platform. */
static bool fits(const json_t *o, const char *ref, struct oci_manifest *m)
{
	const json_t *p = json_object_get(o, "platform");
	const char *os = json_string_value(json_object_get(p, "os")),
		   *arch = json_string_value(json_object_get(p, "architecture"));
	const char *variant = json_string_value(json_object_get(p, "variant"));
	const char *name = json_string_value(json_object_get(json_object_get(o, "annotations"), REF_NAME));

	if (ref && (!name || strcmp(name, ref)))
		return false;
	if (!os || !arch)
		return !p || ref;
	if (strcmp(os, "unknown"))
		add_name(m, os, arch, variant);
	return !strcmp(os, "linux") && !strcmp(arch, oci_architecture());
}

static int read_index(const json_t *o, const char *ref, struct oci_manifest *ret, struct err *e)
{
	const json_t *list = json_object_get(o, "manifests");
	int r;

	if (!json_is_array(list) || json_array_size(list) > OCI_INDEX_MAX)
		return err_set(e, WHY_IMAGE_INVALID, -E2BIG, "the index has no list of images, or more than %u",
			       OCI_INDEX_MAX);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct oci_descriptor d;

		if (!fits(json_array_get(list, i), ref, ret))
			continue;
		r = descriptor(json_array_get(list, i), &d, e);
		if (r < 0)
			return r;
		if (ret->chosen.digest[0] && !ref && !json_object_get(json_array_get(list, i), "platform"))
			return err_set(e, WHY_IMAGE_AMBIGUOUS, -EINVAL, "there are several images, and none was named");
		if (!ret->chosen.digest[0])
			ret->chosen = d;
	}
	if (ret->chosen.digest[0])
		return 0;
	if (ref)
		return err_set(e, WHY_IMAGE_MISSING, -ENOENT, "there is no image '%.100s'", ref);
	return err_set(e, WHY_WRONG_PLATFORM, -ENOENT, "there is no image for linux/%s%s%s", oci_architecture(),
		       ret->names[0] ? ", only for " : "", ret->names);
}

int oci_manifest_parse(const char *text, size_t len, const char *ref, struct oci_manifest *ret, struct err *e)
{
	AUTO(json_decref) json_t *o = oci_json(text, len, OCI_MANIFEST_MAX, "the image's manifest", e);
	const char *type = json_string_value(json_object_get(o, "mediaType"));

	if (!o)
		return -EBADMSG;
	if (json_integer_value(json_object_get(o, "schemaVersion")) != 2)
		return err_set(e, WHY_IMAGE_INVALID, -EOPNOTSUPP,
			       "the image's manifest has an unsupported version: only version 2 is supported");
	/* A document with both could be read differently by another program. */
	if (json_object_get(o, "manifests") && (json_object_get(o, "layers") || json_object_get(o, "config")))
		return refuse(e, "is an image and an index at once");
	memset(ret, 0, sizeof(*ret));
	ret->kind = (type && is_index(type)) || json_object_get(o, "manifests") ? OCI_INDEX : OCI_IMAGE;
	return ret->kind == OCI_INDEX ? read_index(o, ref, ret, e) : read_image(o, ret, e);
}
