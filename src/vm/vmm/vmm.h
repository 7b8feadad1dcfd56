/* cloche-vmm's one machine, and what is being done with it. */
#pragma once
#include "base/err.h"
#include "vm/vmm/carry.h"
#include "vm/vmm/kept.h"
#include "vm/vmm/machine.h"
#include "vm/vmm/meta.h"

#define VMM_SIDE 0 /* the warden's socket */
#define VMM_SAID 2048 /* bytes kept of the last output of QEMU and of the guest's kernel */

enum vmm_state {
	VMM_BOOTS, /* waits for HELLO */
	VMM_LOADED, /* waits for GO */
	VMM_RISES, /* waits until the sandbox is ready, or continues */
	VMM_WARMS, /* a template: waits for the end of its one command */
	VMM_RUNS,
	VMM_STOPS, /* waits until no byte is in transit, then saves */
	VMM_STAYS, /* saved with STAY: stopped until GO_ON */
	VMM_ENDED, /* a template that is complete */
};

enum vmm_save_fd { VMM_SAVE_META, VMM_SAVE_PAGES, VMM_SAVE_DISK, VMM_SAVE_FDS };

struct vmm {
	enum vmm_state state;
	struct vm_start start;
	uint8_t *spec;
	struct vm_stat *stat; /* shared with the warden */
	int meta;
	struct vm_meta was; /* CLONE: the state that it continues from; TEMPLATE: the state that it saves */
	struct machine machine;
	struct carry carry;
	struct kept *kept;
	bool hello; /* the guest has booted */
	bool unloadable; /* a clone: QEMU has refused its state, and may have printed why */
	bool steered; /* STEER has come, with the ->rules_len bytes of ->rules */
	uint32_t rules_len;
	uint8_t rules[VM_RULES_MAX];
	int agent; /* the socket that came with GO, until it is attached; then -1 */
	int warm; /* a template: our socket as the host of its agent */
	bool killed; /* the template's command took too long, and was killed */
	int save[VMM_SAVE_FDS];
	uint64_t save_id;
	bool stay; /* the machine stays stopped after the present save */
	struct vm_join join, join_next; /* the present JOIN and the next one; ->id 0: none */
	uint64_t since, until; /* start and deadline of VMM_STOPS or VMM_WARMS */
	char said[VMM_SAID];
	size_t said_len;
	struct err e;
};

/* Handles START, until VMM_BOOTS or VMM_LOADED. Takes over the descriptors of @fds that it uses. */
int vmm_start(struct vmm *v, const struct vm_msg *m, int *fds, size_t nfds);
/* Answers HELLO with the sandbox's spec. */
int vmm_begin(struct vmm *v, const uint8_t seed[32]);

/*
 * save.c. Begins a save by making the machine quiet; takes over @fds (enum vmm_save_fd). On failure ->e has the reason,
 * and the machine continues.
 */
int vmm_save(struct vmm *v, const struct vm_save *s, int *fds, size_t nfds);
/* Handles GO_ON. Negative: the machine cannot continue. */
int vmm_go_on(struct vmm *v);
/* As vmm_save(), for a template, whose files are its own already. */
int vmm_save_template(struct vmm *v);
/*
 * warm.c: starts a template's one command. vmm_warm_turn() is called in each turn of VMM_WARMS, and saves the template
 * after the command.
 */
int vmm_warm(struct vmm *v);
int vmm_warm_turn(struct vmm *v);
/*
 * Called in each turn of VMM_STOPS: saves as soon as the machine is quiet, and answers. Negative: the machine cannot
 * continue.
 */
int vmm_save_turn(struct vmm *v);
/* The time in ms until the next turn of a save or of a warm command is due; -1: any. */
int vmm_save_wait(const struct vmm *v);

/* join.c: begins a JOIN; vmm_join_turn() answers when it is done. Negative: the machine cannot continue. */
int vmm_join(struct vmm *v, const struct vm_join *j);
int vmm_join_turn(struct vmm *v);

/* main.c: sends an answer to the warden. */
void vmm_say(const struct vm_msg *m);
void vmm_say_failed(uint64_t id, const struct err *e);
