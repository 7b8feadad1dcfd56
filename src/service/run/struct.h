/* Between the files of service/run/. */
#pragma once
#include "base/buf.h"
#include "service/file/file.h"
#include "service/image/work_sandbox.h"
#include "service/run/run.h"
#include "service/sandbox/struct.h"

struct run_file {
	char *path;
	char *bytes;
	size_t len;
};

struct run_request {
	json_t *body;
	json_t *create; /* what its sandbox is to be, as a create says it */
	const char *language; /* the name of a default context */
	struct context_request code; /* points into ->body */
	struct run_file *file;
	unsigned files;
	bool artifacts;
	const json_t *packages; /* to be installed; NULL or [] = none */
	const json_t *globs; /* or NULL: whatever is new */
};

int run_request_read(const struct service_opts *o, const char *data, size_t len, struct run_request **ret,
		     struct err *e);
void run_request_free(struct run_request *q);
DEFINE_AUTO(struct run_request, run_request_free)

/* What is in the working folder. */
struct folder_file {
	char *path;
	uint64_t size, ino;
	int64_t mtime;
};
struct folder_list {
	struct folder_file *item;
	unsigned n, room;
	bool more; /* than is listed here */
};
void folder_list_done(struct folder_list *l);
int folder_list_add(struct folder_list *l, const struct file_entry *x);
void folder_list_sort(struct folder_list *l);
/* The files of @after that are not in sorted @before as they are now, and are asked for; at most RUN_ARTIFACTS_MAX of them. */
void artifacts_choose(const struct folder_list *before, const struct folder_list *after, const json_t *globs,
		      struct run_artifact **ret, unsigned *ret_n, uint64_t *ret_left_out);
void artifacts_free(struct run_artifact *a, unsigned n);

struct package_waiter;

struct run {
	struct service *s;
	struct who who;
	struct run_request *request;
	struct run_reader reader;
	struct work_sandbox *work;
	struct sandbox *sandbox; /* ->work's; NULL: it is not ready yet */
	struct context_task *task;
	struct file_op *op;
	unsigned next_file;
	struct folder_list before, after;
	struct run_artifact *artifact;
	unsigned artifacts, reading;
	uint64_t left_out, content_bytes;
	size_t held; /* bytes of files and of artifacts, as they are counted for the tenant */
	size_t fed; /* of the file that is being written */
	bool fed_all;
	struct buf content; /* of the artifact that is being read */
	struct context_end end; /* ->failed is &->fail, or NULL */
	struct err fail;
	bool warm; /* its sandbox continues from the image of a warm context */
	bool begun, ran;
	struct package_waiter *packages; /* or NULL */
	struct turn_wait wait;
};
