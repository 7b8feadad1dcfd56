/*
 * Sandboxes that are virtual machines, from the warden's side: for the files of this folder only.
 *
 * A machine runs in a jail, which is a container like any other (jail.c), and is controlled by its side socket
 * (vm/vmm/side.h). It is made step by step, when workers, templates and cloche-vmm are done (make.c), mostly as a clone
 * of a template: a machine of the same kind that was booted once and stopped (template.c). Callers get it when it is
 * up. All of this happens in the warden's thread, except for what struct vm_work does.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "engine/blank/record.h"
#include "engine/spec.h"
#include "engine/tier.h"
#include "engine/work.h"
#include "layers/seal.h"
#include "vm/host/files.h"
#include "vm/vmm/side.h"

struct warden;
struct warden_done;
struct warden_sandbox;
struct warden_stat;

#define VM_OWN_MAX (VM_CHAIN_MAX - 1)
#define VM_KEY_NAME 40 /* "t-", 32 digits */

enum vm_stage {
	VM_LOOKS, /* waits for its image */
	VM_TRIES, /* waits until it is known whether KVM works */
	VM_WAITS, /* for its template */
	VM_FLATTENS, /* memory of its layers is assembled */
	VM_FORMATS, /* what it boots with is being made */
	VM_LOADS, /* START was sent */
	VM_STANDS, /* ready for GO */
	VM_GOES, /* GO was sent */
	VM_RUNS,
};

struct vm_work;

/* Files of templates, and what else tasks have. */
enum vm_file_of {
	VM_FILE_ROOT, /* the image: folders as input of a task, erofs files as output */
	VM_FILE_USR,
	VM_FILE_META,
	VM_FILE_RAM,
	VM_FILE_DISK,
	VM_FILE_OF_TEMPLATE,
	VM_FILE_INITRD = VM_FILE_OF_TEMPLATE,
	/* where the template is made; with VM_PICTURE: the cache, or, for an image of layers (->given.name), the folder of templates */
	VM_FILE_FOLDER,
	VM_FILE_DIR, /* the store; stays its owner's */
	VM_FILE_OF_WORK,
};

/* An image as erofs, remembered for a while: checking a whole tree takes long. */
struct vm_picture {
	char path[SPEC_PATH]; /* of the folder; or vm_stack_key(); "": the place is free */
	int root, usr; /* open, or -1 */
	uint8_t root_id[SHA256_SIZE], usr_id[SHA256_SIZE];
	uint64_t looked; /* time of the last check, 0: never */
	bool layered; /* of layers, which never change: checked once */
	struct vm_work *work; /* the check under way */
};

enum vm_template_state { VM_T_LOOKS, VM_T_BOOTS, VM_T_KEEPS, VM_T_READY };

struct vm_template {
	struct vm_template *next;
	uint64_t tenant; /* its tenant; no machine of another tenant is based on it */
	uint8_t key[SHA256_SIZE];
	char name[VM_KEY_NAME];
	enum vm_template_state state;
	bool instead; /* booted emulated although KVM is in use, as of a machine that waits for it */
	bool failed; /* used only by its present users: the next request makes a new one */
	unsigned users; /* machines that use it */
	uint64_t used; /* time of the last use */
	int fd[VM_FILE_OF_TEMPLATE]; /* -1; the memory is sealed */
	struct vm_work *work;
	struct warden_sandbox *boots;
};

/* A template's memory combined with that of some layers. */
struct vm_flat {
	char layer[ID_SIZE]; /* the newest layer */
	int ram;
	uint64_t used;
};
#define VM_FLATS 4
#define VM_PICTURES 32U

struct machine {
	struct machine *next, **prev;
	struct warden_sandbox *sandbox;
	enum vm_stage stage;
	enum vm_role role;
	enum vm_accel accel;
	bool trial; /* boots only, as a trial: see accel.c */
	bool instead; /* emulated, since its template did not come up with KVM */
	struct sandbox_spec spec; /* as requested, without layers */
	uint32_t stack; /* how many of the sandbox's layers, the lowest, are its image; all others are disks */
	struct vm_picture *picture;
	struct vm_template *template; /* it is a clone of this, or boots it */
	struct vm_work *work;
	int side; /* the socket to cloche-vmm */
	int sock; /* the agent's socket, until it is handed out */
	int log; /* output of cloche-vmm and QEMU; -1 in a machine that was taken over */
	int page; /* memory of the STAT message */
	const struct vm_stat *stat; /* ->page, mapped */
	int ram; /* the memory that it is cloned from, -1: the template's */
	struct seal_disk own[VM_OWN_MAX]; /* its disks above those it was made of; the last one is written to */
	unsigned nown;
	uint32_t next_disk; /* number of the next disk */
	uint32_t joined; /* how many of its layers, the newest, are joined into its own disks by now */
	uint64_t until; /* ns: deadline of the present step; of a prebuilt one: when it is dropped */
	uint64_t cpu_base; /* µs of CPU time that making it took */
	uint32_t group; /* the last number of a group */
	unsigned unasked; /* answers that will be ignored */
	bool wanted; /* a caller waits for it */
	bool finished; /* it is up or has failed: ->result */
	bool saving; /* a worker uses its side socket */
	bool dead;
	bool ends; /* it ends for good, and is not only left to the next warden */
	void *tag;
	int result;
	struct err e;
};

/* The state of one warden. */
struct vms {
	int dir; /* folder of templates and disks */
	char path[400];
	int epoll, timer;
	struct machine *machines;
	struct vm_template *templates;
	struct vm_picture picture[VM_PICTURES];
	struct vm_flat flat[VM_FLATS];
	uint64_t swept;
	enum vm_accel accel; /* for new machines; 0: not decided yet */
	char accel_why[160]; /* why ->accel was chosen */
	char no_kvm[160]; /* why an emulated template is tried */
	bool kvm_ran; /* a machine came up with KVM: so KVM works, whatever happens to another one */
	struct machine *trial; /* the machine of the trial boot */
	struct vm_picture blank; /* the trial's image */
	unsigned stored; /* templates since the last sweep */
	bool cold; /* set by tests: no templates */
	bool kernel_known;
	uint8_t kernel[SHA256_SIZE]; /* the kernel's sum, of the file that ->kernel_id identifies */
	uint8_t kernel_id[SHA256_SIZE];
};

/* --- slow tasks (work.c) --- */
enum vm_task {
	VM_PICTURE,
	VM_LOOK,
	VM_NEW,
	VM_STORE,
	VM_FLATTEN,
	VM_KNOWN, /* loads whether KVM works here (verdict.h): ->found, and why in ->e; -ENOENT: it is not known */
	VM_REMEMBER, /* stores ->found and why, which is in ->path */
};
/* What a task is given, and what it has made: without descriptors, as they are sent. No padding. */
struct vm_given {
	uint64_t memory, size, inodes;
	uint64_t template_wanted;
	char path[SPEC_PATH];
	char cache[400]; /* path of VM_FILE_FOLDER */
	char name[VM_KEY_NAME], part[VM_KEY_NAME + 24];
};
struct vm_made {
	int32_t result;
	uint32_t found; /* another process has made it meanwhile; it is open */
	uint8_t root_id[SHA256_SIZE], usr_id[SHA256_SIZE], kernel[SHA256_SIZE], initrd_sum[SHA256_SIZE];
	struct err e;
	uint32_t none;
};
struct vm_work {
	struct work work;
	enum vm_task task;
	struct machine *machine; /* the machine it is for; NULL: none any more */
	struct vm_template *template;
	struct vm_picture *picture;
	/* input and output; each task uses some of them */
	struct vm_given given;
	struct vm_made made;
	int fd[VM_FILE_OF_WORK];
	struct vm_pace pace;
	bool held; /* between two tasks: owned by the template, not by a worker */
	int pages[SPEC_LAYERS];
	unsigned npages;
};
/* ->work.run has cloche-vm-files do the task, and waits for it. */
struct vm_work *vm_work_new(enum vm_task task, struct err *e);
/* Has the task done at once, for tasks that take a moment. Returns ->made.result. */
int vm_work_do(struct vm_work *x);
/* Whether the locked folder still has its name, and was not replaced or removed by another process. */
bool vm_work_is_part(const struct vm_work *x);
void vm_work_free(struct vm_work *x);

/* --- make.c --- */
int vm_create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* Called before the sandbox itself ends: forgets the machine. */
void vm_leave(struct warden *w, struct warden_sandbox *s);
/* Ends all machines that were not handed out. Frees the rest when no worker is left. */
void vm_close(struct warden *w);
void vm_free(struct warden *w);
int vm_open(struct warden *w, struct err *e);
/* To be called when all live machines are found again: until then their disks look unused. */
void vm_first_sweep(struct warden *w);
void vm_fail(struct warden *w, struct machine *m, int r, const struct err *e);
/* Fails the caller of @m; a machine without one is only removed and freed. */
void vm_give_up(struct warden *w, struct machine *m, int r, struct err *e);
/* Makes a machine that is not visible to callers yet. */
int vm_new_machine(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* Boots the machine itself, without a template. */
int vm_boot_cold(struct warden *w, struct machine *m, struct err *e);
/* Starts with its image, or its layers; called again once it is known how machines run. */
int vm_begin(struct warden *w, struct machine *m, struct err *e);
/* Forgets the image of that key, unless a machine still needs it. */
void vm_picture_drop(struct warden *w, const char *key);
/* Continues when its image is known. */
int vm_looked(struct warden *w, struct machine *m, struct err *e);
/* Sends GO to a machine that is ready and wanted. */
void vm_let_go(struct warden *w, struct machine *m);
/* Prebuilds another machine of the same kind, for the next request. */
void vm_keep_ready(struct warden *w, const struct machine *like);
/* Continues when its template is ready. */
void vm_go_on(struct warden *w, struct machine *m);
void vm_loads(struct warden *w, struct machine *m, uint64_t ns);
void vm_tick(struct vms *v);

/* --- accel.c --- */
/*
 * Decides once how machines run: with KVM where a trial shows that it works, unless configured otherwise. Refuses what
 * is impossible. It may take a boot: until then vms.accel is 0, and machines wait (VM_TRIES).
 */
int vm_accel_decide(struct warden *w, struct err *e);
/* The trial's machine @m has booted or failed: it ends, and all waiting machines continue. */
void vm_accel_tried(struct warden *w, struct machine *m, int r, const struct err *e);
/* How long @m may take for what an emulated machine may take @ns: with KVM it is fast, or does not work. */
uint64_t vm_accel_patience(const struct warden *w, const struct machine *m, uint64_t ns);
/* Refuses to restore a state that needs an accelerator which is not available. */
int vm_accel_fits(const struct warden *w, enum vm_accel accel, struct err *e);
/*
 * @t did not boot. If it should have run with KVM, and the administrator did not choose it: machines that wait for it,
 * except those with layers, wait for an emulated template now.
 */
void vm_accel_instead(struct warden *w, struct vm_template *t, const struct err *e);
/*
 * @t came up. If it is such an emulated one, and no machine ever came up with KVM, KVM is to blame and is not used any
 * more.
 */
void vm_accel_blame(struct warden *w, const struct vm_template *t);

/* --- doing.c --- */
/* One line for users: what it waits for. */
void vm_doing(const struct machine *m, char *ret, size_t size);

/* --- done.c --- */
/* Handles a finished work item. */
void vm_worked(struct warden *w, struct work *work);
/* Handles side sockets and the clock. True when a machine that a caller waits for is up or has failed. */
bool vm_done(struct warden *w, struct warden_done *ret);

/* --- flat.c --- */
int vm_flat_find(struct vms *v, const char *layer); /* borrowed from the cache; -1: not there */
void vm_flat_put(struct vms *v, const char *layer, int ram); /* takes it over */
void vm_flats_idle(struct vms *v, uint64_t now);

/* --- jail.c --- */
struct machine *vm_machine_new(const struct sandbox_spec *spec);
void vm_machine_free(struct machine *m);
/* Makes the jail and starts cloche-vmm in it. */
int vm_jail(struct warden *w, struct machine *m, struct err *e);
int vm_start_template(struct warden *w, struct machine *m, const struct vm_work *x, struct err *e);
int vm_start_clone(struct warden *w, struct machine *m, int meta, int ram, struct err *e);
int vm_go(struct warden *w, struct machine *m, struct err *e);
/* Adds to an error of a machine that did not come up what the jail or QEMU printed. */
int vm_explain(struct machine *m, int r, struct err *e);
/* The last line that cloche-vmm or QEMU printed, if it is complete and the output was read. "" when none. */
void vm_last_words(const struct machine *m, char *ret, size_t size);
/* The spec for the guest, without what is particular to this sandbox. */
void vm_guest_spec(const struct sandbox_spec *from, struct sandbox_spec *to);
uint32_t vm_cpus(const struct spec_limits *l);
/* Refuses more processors or memory than this host can give a machine. */
int vm_fits(const struct spec_limits *l, struct err *e);

/* --- template.c --- */
/* The key of the template that a machine of @spec is a clone of. @id: of the programs (vm_identity()). 0 or -ENOMEM. */
int vm_key(const struct sandbox_spec *spec, enum vm_accel accel, const uint8_t id[SHA256_SIZE],
	   const uint8_t root[SHA256_SIZE], const uint8_t usr[SHA256_SIZE], uint8_t ret[SHA256_SIZE]);
/* Takes a use of the template, so that it stays. */
struct vm_template *vm_template_hold(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e);
/* The same; it is searched for, or booted: see its state. Refused when the tenant has too many under way. */
struct vm_template *vm_template_get(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e);
void vm_template_worked(struct warden *w, struct vm_work *x);
/* The machine that boots it has sent TEMPLATED. */
void vm_template_booted(struct warden *w, struct vm_template *t, struct machine *m);
/* Fails the template and all that wait for it. */
void vm_template_fail(struct warden *w, struct vm_template *t, int r, const struct err *e);
void vm_template_drop(struct vm_template *t); /* drops a machine's use */
void vm_templates_end(struct vms *v);
void vm_templates_idle(struct vms *v, uint64_t now);
int vm_store_open(const char *path, char *ret_path, size_t size, struct err *e);
/* Removes what dead wardens left half-made, unused disks, and templates that nothing is based on any more. */
void vm_store_sweep(struct warden *w);

/* --- live.c --- */
int vm_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret);
int vm_group(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e);
int vm_group_fd(uint32_t number, struct err *e);
int vm_group_end(struct warden_sandbox *s, enum tier_group_end how, uint32_t number, struct err *e);
int vm_attach(struct warden_sandbox *s, int *ret_sock, struct err *e);
/* Sets the network policy for its guest, NULL: no network. The jail's own network enforces it. */
int vm_steer(struct warden_sandbox *s, const struct steer_rules *rules, struct err *e);
/* Resumes a machine that was saved while it was paused, which stays stopped until this call. */
int vm_run_again(struct warden_sandbox *s, struct err *e);
int vm_adopt(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e);
int vm_stat_page(struct err *e);
const struct vm_stat *vm_stat_map(int page);

/* --- layer.c --- */
/* Opens the disks that layers add to a machine's chain, oldest first. How many, or -errno. */
int vm_layer_disks(struct warden *w, const char (*ids)[ID_SIZE], uint32_t n, int *ret, unsigned max, struct err *e);
int vm_layer_meta(struct warden *w, const char *id, struct err *e); /* opens META */
int vm_layer_pages(struct warden *w, const char *id, struct err *e);

/* --- stack.c --- */
/* How many of its layers, the lowest, are folders: those of its image. */
uint32_t vm_stack(const struct warden *w, const struct warden_sandbox *s);
uint32_t vm_disks(const struct warden_sandbox *s); /* how many are disks: all others */
/* What its image is called by its uppermost layer. */
void vm_stack_key(const char *layer, char ret[SPEC_PATH]);
/* Fills in what VM_PICTURE needs for the image of @s, a machine of SPEC_SCRATCH. */
int vm_stack_look(struct warden *w, const struct warden_sandbox *s, struct vm_work *x, struct err *e);
/* Whether the file @name in the folder of templates is an image whose layer is gone, or that no machine used for long. */
bool vm_stack_unused(struct warden *w, const char *name);
/* The layer was removed: so is its image. */
void vm_stack_gone(struct warden *w, const char *layer);

/* --- chain.c --- */
static_assert(RECORD_DISKS == VM_OWN_MAX, "all of them are written down");
/* Makes the first disk of its own, new and empty, above @below others: ->own[0]. */
int vm_own_first(struct warden *w, struct machine *m, unsigned below, struct err *e);
/* Opens the disks that a record names, and one that was not recorded yet. 0 or -errno. */
int vm_own_find(struct warden *w, struct warden_sandbox *s, const struct record_vm *rec);
void vm_own_record(const struct machine *m, struct record_vm *ret);
void vm_own_remove_all(struct warden *w, struct machine *m); /* removes their files */
/* Fills in what seal_start() needs of the machine; from then on the worker uses its side socket. */
int vm_seal_begin(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e);
/* Takes the machine back with its present disks; @seal: NULL when it never started, and @from is taken back. */
void vm_seal_end(struct warden *w, struct warden_sandbox *s, struct seal_source *from, const struct seal *seal);
