/*
 * The chain of a clone's disks: a template's, those of layers, its own; each save puts one more on top. To keep the
 * chain short, the disks in between are merged into the top one from time to time. QEMU does that while the machine
 * runs: until it has finished, the chain is unchanged, and what was copied so far equals what is below it.
 */
#include "vm/vmm/chain.h"
#include "base/base.h"
#include "vm/vmm/qcow.h"

#include <sys/stat.h>

/* first number of our descriptor sets, above those of its command line, which are named by descriptor numbers */
#define SET_BASE 1000U
#define JOB "join"

void chain_begin(struct machine *m)
{
	m->disks = m->opts.disks;
	for (size_t i = 0; i < m->disks; i++)
		m->chain[i] = (struct machine_disk){ (uint32_t)i, (uint32_t)m->opts.disk[i], true };
}

uint32_t chain_set(struct machine *m)
{
	return SET_BASE + m->sets++;
}

uint32_t machine_top(const struct machine *m)
{
	return m->chain[m->disks - 1].number;
}

int chain_format(const struct machine *m, int disk, struct err *e)
{
	struct stat st;
	int r = fstat(m->opts.disk[0], &st) < 0 ? -errno : qcow_format(disk, (uint64_t)st.st_size);

	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make the virtual machine's disk") : 0;
}

/* Makes QEMU close a disk. A disk of its command line has a separate node for the file below. */
static void close_disk(struct machine *m, const struct machine_disk *d)
{
	qmp_do(&m->qmp, -1, "blockdev-del", NULL, "\"node-name\":\"d-" QEMU_DISK "-%u\"", d->number);
	if (d->given) {
		qmp_do(&m->qmp, -1, "blockdev-del", NULL, "\"node-name\":\"f-" QEMU_DISK "-%u\"", d->number);
		fd_close(TAKE_FD(m->opts.disk[d->number]));
	}
	qmp_do(&m->qmp, -1, "remove-fd", NULL, "\"fdset-id\":%u", d->set);
}

int machine_overlay(struct machine *m, uint32_t number, int disk, struct err *e)
{
	int r;

	if (number <= machine_top(m) || m->disks == VM_CHAIN_MAX || m->joins)
		return err_set(e, ERR_CONFLICT, -EBUSY, "the virtual machine's chain of disks cannot be extended now");
	r = chain_format(m, disk, e);
	if (r < 0)
		return r;
	m->next = (struct machine_disk){ number, chain_set(m), false };
	r = qmp_do(&m->qmp, disk, "add-fd", e, "\"fdset-id\":%u", m->next.set);
	if (r < 0)
		return r;
	m->prepared = true;
	r = qmp_do(&m->qmp, -1, "blockdev-add", e,
		   "\"driver\":\"qcow2\",\"node-name\":\"d-" QEMU_DISK
		   "-%u\",\"backing\":null,\"discard\":\"unmap\",\"file\":{"
		   "\"driver\":\"file\",\"node-name\":\"f-" QEMU_DISK
		   "-%u\",\"filename\":\"/dev/fdset/%u\",\"locking\":\"off\","
		   "\"discard\":\"unmap\",\"cache\":{\"no-flush\":true}}",
		   number, number, m->next.set);
	if (r < 0)
		machine_overlay_drop(m);
	return r;
}

int machine_overlay_switch(struct machine *m, struct err *e)
{
	int r = qmp_do(&m->qmp, -1, "blockdev-snapshot", e,
		       "\"node\":\"d-" QEMU_DISK "-%u\",\"overlay\":\"d-" QEMU_DISK "-%u\"", machine_top(m),
		       m->next.number);

	if (r == 0) {
		m->chain[m->disks++] = m->next;
		m->prepared = false;
	}
	return r;
}

void machine_overlay_drop(struct machine *m)
{
	if (m->prepared)
		close_disk(m, &m->next);
	m->prepared = false;
}

int machine_join(struct machine *m, uint32_t base, struct err *e)
{
	size_t at = m->disks - 1;
	int r;

	while (at && m->chain[at].number > base)
		at--;
	if (at + 2 >= m->disks)
		return 1;
	m->qmp.job = 0;
	r = qmp_do(&m->qmp, -1, "block-stream", e,
		   "\"job-id\":\"" JOB "\",\"device\":\"d-" QEMU_DISK "-%u\",\"base-node\":\"d-" QEMU_DISK "-%u\"",
		   machine_top(m), m->chain[at].number);
	if (r < 0)
		return r;
	m->join = at;
	m->joins = true;
	return 0;
}

int machine_joined(struct machine *m, struct err *e)
{
	int r;

	if (!m->joins)
		return 1;
	/*
	 * The event that the job has ended may have been read together with an answer, and then nothing more arrives.
	 */
	r = m->qmp.job ? 0 : qmp_drain(&m->qmp);
	if (r < 0)
		return err_set(e, ERR_LOST, r, "merge the virtual machine's disks: QEMU has ended");
	if (!m->qmp.job)
		return 0;
	m->joins = false;
	if (m->qmp.job < 0)
		return err_set(e, ERR_EXHAUSTED, strstr(m->qmp.job_why, strerror(ENOSPC)) ? -ENOSPC : -EIO,
			       "merge the virtual machine's disks: %s", m->qmp.job_why);
	/* Disks are closed from the top, since each one uses the one below it. */
	while (m->disks > m->join + 2) {
		close_disk(m, &m->chain[m->disks - 2]);
		m->chain[m->disks - 2] = m->chain[m->disks - 1];
		m->disks--;
	}
	return 1;
}
