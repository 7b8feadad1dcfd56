/* Between the parts of service/template/. */
#pragma once
#include "service/template/struct.h"

void template_free(struct template *t);
DEFINE_AUTO(struct template, template_free)

#define TEMPLATE_KEY 256
void template_key(const struct tenant *t, const char *name, char key[TEMPLATE_KEY]);

/* template.c */
int template_read(struct service *s, const json_t *body, struct template *t, struct err *e);
int template_remove(void *x, const struct who *who, struct err *e); /* of template_kind. put.c */
int template_store(const struct template *t, struct err *e);
void template_refresh(struct template *t); /* ->request, after the checkpoint that it is based on has changed */
int template_cold_request(const struct template *t, struct sandbox_request **ret,
			  struct err *e); /* without its warm image */
