/* What the files of the log share. */
#pragma once
#include "audit/audit.h"
#include "audit/chain.h"
#include "audit/line.h"
#include "base/buf.h"
#include "base/json.h"

#define INDEX_EVERY 256

struct audit {
	int fd;
	int r; /* the first failure: nothing is written after it */
	struct chain chain; /* its head covers what is pending too */
	uint64_t size, written; /* of the file; its last record */
	uint64_t ahead; /* the file's space on the disk is allocated up to here */
	struct buf pending; /* whole records, and the open one */
	struct json json; /* of the open record */
	size_t start, common; /* where it begins in ->pending, where its common fields end */
	bool open;
	uint64_t second; /* the time that ->iso shows */
	char iso[32];
	uint64_t *index; /* the places of records 1, 257, 513 … */
	size_t nindex, index_cap;
};

/* Notes the place of record @seq, when it is one of those that are kept. */
int audit_index_add(struct audit *a, uint64_t seq, uint64_t offset);
