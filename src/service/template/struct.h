/* The members of templates and pools: for the rooms of service/. Others use the functions of template.h and pool.h. */
#pragma once
#include "service/sandbox/struct.h"
#include "service/template/pool.h"
#include "service/template/template.h"

struct template
{
	struct service *service;
	struct tenant *tenant;
	char name[NAME_MAX_LEN + 1];
	uint64_t version; /* grows with every change of what sandboxes get */
	json_t *config; /* as given */
	json_t *start; /* an exec, or NULL */
	json_t *warm; /* as given, or NULL */
	char image[ID_SIZE]; /* of its warm process: a checkpoint with memory. "" = none */
	uint64_t since_ns; /* the image was made */
	uint64_t rewarmed_ns; /* monotonic: because the one before was refused */
	char checkpoint[ID_SIZE]; /* its sandboxes start from, "" = none. It cannot be deleted meanwhile */
	char *description;
	bool admin; /* made by one: may lift limits */
	uint64_t created_ns, updated_ns;
	/* ->config read with today's defaults; NULL when that fails, and ->bad says why */
	struct sandbox_request *request;
	struct err bad;
	struct pool *pools; /* pools that use it */
};

struct pool {
	struct service *service;
	struct template *template;
	struct pool *next; /* of the template's */
	char id[ID_SIZE];
	char name[NAME_MAX_LEN + 1];
	uint32_t min, max; /* 0 max = no bound */
	uint64_t created_ns;
	struct sandbox *ready, **ready_last; /* oldest first */
	unsigned nready, making;
	unsigned alive; /* ready, in the making and given out */
	uint64_t served, missed, failed; /* since the daemon started */
	unsigned fails; /* in a row */
	uint64_t again_ns; /* monotonic: not before */
	struct err last; /* of the last failure, until one is made again */
};
