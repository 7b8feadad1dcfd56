/* What is recorded of a change of a file. */
#include "base/base.h"
#include "base/mask.h"
#include "service/file/file.h"
#include "service/secret/give.h"
#include "service/state/event.h"

void file_note(struct sandbox *b, const struct who *who, const struct file_change *x)
{
	struct audit_rec rec = who_rec(who, x->kind);
	AUTO(buf_done) struct buf fields = BUF_INIT(32 * KIB);
	struct json ej = JSON_INIT(&fields);
	struct mask *mask = sandbox_mask(b);
	struct json *j;

	rec.tenant = b->tenant->id;
	rec.sandbox = b->id;
	j = audit_begin(b->service->audit, &rec);
	mask_write(mask, "path", x->path, j);
	if (x->to)
		mask_write(mask, "to", x->to, j);
	jout_str(j, "user", x->user);
	jout_u64(j, "bytes", x->bytes);
	audit_end(b->service->audit, NULL);
	jout_object(&ej, NULL);
	mask_write(mask, "path", x->path, &ej);
	jout_end(&ej);
	if (jout_done(&ej) == 0) {
		buf_cut(&fields, fields.len - 1);
		event_add(b->service, b, x->kind, fields.data + 1);
	}
}
