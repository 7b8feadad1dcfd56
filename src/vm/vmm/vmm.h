/* cloche-vmm's one machine, and what is being done with it. */
#pragma once
#include "base/err.h"
#include "vm/vmm/carry.h"
#include "vm/vmm/kept.h"
#include "vm/vmm/machine.h"
#include "vm/vmm/meta.h"

#define VMM_SIDE 0 /* the warden's socket */
#define VMM_SAID 2048 /* of what QEMU and the guest's kernel said last */

enum vmm_state {
	VMM_BOOTS, /* until HELLO */
	VMM_LOADED, /* until GO */
	VMM_RISES, /* until the sandbox is ready, or continues */
	VMM_WARMS, /* a template: until its one command has ended */
	VMM_RUNS,
	VMM_STOPS, /* until no byte is under way: then it is saved */
	VMM_STAYS, /* saved with STAY, and stopped until GO_ON */
	VMM_ENDED, /* a template that is complete */
};

enum vmm_save_fd { VMM_SAVE_META, VMM_SAVE_PAGES, VMM_SAVE_DISK, VMM_SAVE_FDS };

struct vmm {
	enum vmm_state state;
	struct vm_start start;
	uint8_t *spec;
	struct vm_stat *stat; /* shared with the warden */
	int meta;
	struct vm_meta was; /* CLONE: what it was made of; TEMPLATE: what it becomes */
	struct machine machine;
	struct carry carry;
	struct kept *kept;
	bool hello; /* it has booted */
	bool unloadable; /* a clone: QEMU did not take its state, and may have said why */
	bool steered; /* STEER has come: */
	uint32_t rules_len;
	uint8_t rules[VM_RULES_MAX];
	int agent; /* GO's, until it is attached */
	int warm; /* a template: our end as its agent's host */
	bool killed; /* its command took too long */
	int save[VMM_SAVE_FDS];
	uint64_t save_id;
	bool stay; /* behind the save that is under way */
	struct vm_join join, join_next; /* ->id 0: none; under way, and behind it */
	uint64_t since, until; /* VMM_STOPS, VMM_WARMS */
	char said[VMM_SAID];
	size_t said_len;
	struct err e;
};

/* What START asks for, up to VMM_BOOTS or VMM_LOADED. Takes what it uses of @fds. */
int vmm_start(struct vmm *v, const struct vm_msg *m, int *fds, size_t nfds);
/* HELLO's answer: what the sandbox is to be. */
int vmm_begin(struct vmm *v, const uint8_t seed[32]);

/*
 * save.c. Begins to quiesce for a save; @fds: enum vmm_save_fd, taken. On failure ->e has the reason, and the machine
 * continues.
 */
int vmm_save(struct vmm *v, const struct vm_save *s, int *fds, size_t nfds);
/* GO_ON. Negative: the machine cannot. */
int vmm_go_on(struct vmm *v);
/* As vmm_save() for a template: all of it is its own already. */
int vmm_save_template(struct vmm *v);
/* warm.c: begins a template's one command; in VMM_WARMS, each turn: saves it behind that. */
int vmm_warm(struct vmm *v);
int vmm_warm_turn(struct vmm *v);
/* In VMM_STOPS, each turn: saves once all is quiet, and answers. Negative: the machine cannot continue. */
int vmm_save_turn(struct vmm *v);
/* So many ms may go by until the next turn of either, -1: any. */
int vmm_save_wait(const struct vmm *v);

/* join.c: begins it, and answers once it is done. Negative: the machine cannot continue. */
int vmm_join(struct vmm *v, const struct vm_join *j);
int vmm_join_turn(struct vmm *v);

/* main.c: an answer to the warden. */
void vmm_say(const struct vm_msg *m);
void vmm_say_failed(uint64_t id, const struct err *e);
