/*
 * Sandboxes that are virtual machines, as the warden has to do with them: for the files that make it up, nobody else.
 *
 * A machine runs in a jail, which is a container like any other (jail.c), and is spoken to by its side socket
 * (vm/vmm/side.h). It is made step by step, as workers, templates and cloche-vmm get done (make.c), mostly as a clone of
 * a template: a machine of the same kind that was booted once and stopped (template.c). Nobody hears of it before it
 * is up. All of it happens in the warden's thread, but for what struct vm_work does.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "engine/blank/record.h"
#include "engine/spec.h"
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
	VM_LOOKS, /* for its image */
	VM_TRIES, /* waits until it is known whether KVM works */
	VM_WAITS, /* for its template */
	VM_FLATTENS, /* memory of its layers */
	VM_FORMATS, /* what it boots with is made */
	VM_LOADS, /* START was sent */
	VM_STANDS, /* could GO */
	VM_GOES, /* GO was sent */
	VM_RUNS,
};

struct vm_work;

/* A folder as erofs, remembered for a while: looking through it takes long. */
struct vm_picture {
	struct vm_picture *next;
	char path[SPEC_PATH];
	int root, usr; /* open, or -1 */
	uint8_t root_id[SHA256_SIZE], usr_id[SHA256_SIZE];
	uint64_t looked; /* when, 0: never */
	struct vm_work *work; /* looks */
};

enum vm_template_state { VM_T_LOOKS, VM_T_BOOTS, VM_T_KEEPS, VM_T_READY };

struct vm_template {
	struct vm_template *next;
	uint64_t tenant; /* whose; nobody else's machines stand on it */
	uint8_t key[SHA256_SIZE];
	char name[VM_KEY_NAME];
	enum vm_template_state state;
	bool instead; /* as of a machine that waits for it */
	bool failed; /* it is nobody's but those who have it: who asks next looks anew */
	unsigned users; /* machines */
	uint64_t used; /* when, last */
	int meta, ram, disk, root, usr; /* -1; ->ram: in memory, sealed */
	struct vm_work *work;
	struct warden_sandbox *boots;
};

/* A template's memory with that of some layers. */
struct vm_flat {
	char layer[ID_SIZE]; /* the newest */
	int ram;
	uint64_t used;
};
#define VM_FLATS 4

struct machine {
	struct machine *next, **prev;
	struct warden_sandbox *sandbox;
	enum vm_stage stage;
	enum vm_role role;
	enum vm_accel accel;
	bool trial; /* boots, and that is all: see accel.c */
	bool instead; /* emulated, since with KVM its template did not come up */
	struct sandbox_spec spec; /* as it was asked for */
	struct vm_picture *picture;
	struct vm_template *template; /* it stands on, or boots */
	struct vm_work *work;
	int side; /* to cloche-vmm */
	int sock; /* the agent's, as far as anybody knows; until it is handed out */
	int log; /* what cloche-vmm and QEMU say; -1 in one that was taken over */
	int page; /* STAT */
	const struct vm_stat *stat; /* mapped */
	int ram; /* what it is cloned from, -1: the template's */
	struct seal_disk own[VM_OWN_MAX]; /* its disks above those it was made of, the last one is written */
	unsigned nown;
	uint32_t next_disk; /* its number */
	uint32_t joined; /* of the layers it was made of: so many, the newest, are on its own disks by now */
	uint64_t until; /* ns: then it takes too long; of one that stands: nobody wants it */
	uint64_t cpu_base; /* us that making it took */
	uint32_t group; /* the last number given */
	unsigned unasked; /* messages for nobody */
	bool wanted; /* somebody waits for it */
	bool finished; /* and it is up, or will never be: ->result */
	bool saving; /* its side socket is a worker's */
	bool dead;
	bool ends; /* for good, not only for us */
	void *tag;
	int result;
	struct err e;
};

/* Of one warden. */
struct vms {
	int dir; /* templates and disks */
	char path[400];
	int epoll, timer;
	struct machine *machines;
	struct vm_template *templates;
	struct vm_picture *pictures;
	struct vm_flat flat[VM_FLATS];
	uint64_t swept;
	enum vm_accel accel; /* of new machines; 0: not yet known */
	char accel_why[160]; /* and why */
	char no_kvm[160]; /* why it is tried without */
	bool kvm_ran; /* a machine of ours came up with it */
	struct machine *trial; /* boots to show whether KVM works */
	struct vm_picture blank; /* its image */
	unsigned stored; /* templates since then */
	bool cold; /* a test's wish: no templates */
	bool kernel_known;
	uint8_t kernel[SHA256_SIZE]; /* its sum, of the file that ->kernel_id is */
	uint8_t kernel_id[SHA256_SIZE];
};

/* --- what takes long (work.c) --- */
enum vm_task { VM_PICTURE, VM_LOOK, VM_NEW, VM_STORE, VM_FLATTEN };
struct vm_work {
	struct work work;
	enum vm_task task;
	struct machine *machine; /* whose, NULL: nobody's any more */
	struct vm_template *template;
	struct vm_picture *picture;
	int result;
	struct err e;
	/* in and out, each task some of them */
	int dir; /* the store; stays its owner's */
	char path[SPEC_PATH];
	char name[VM_KEY_NAME], part[VM_KEY_NAME + 24];
	int root, usr; /* the image: folders in, erofs out */
	uint8_t root_id[SHA256_SIZE], usr_id[SHA256_SIZE];
	uint64_t memory, size, inodes;
	int meta, ram, disk, initrd, folder;
	bool template_wanted;
	bool found; /* another process has made it meanwhile: open */
	struct vm_pace pace;
	bool held; /* between two tasks: its template's, not a worker's */
	uint8_t kernel[SHA256_SIZE], initrd_sum[SHA256_SIZE];
	int pages[SPEC_LAYERS];
	unsigned npages;
};
struct vm_work *vm_work_new(enum vm_task task, struct err *e);
void vm_work_free(struct vm_work *x);

/* --- make.c --- */
int vm_create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* Before the sandbox's own end: the machine is not known any more. */
void vm_leave(struct warden *w, struct warden_sandbox *s);
/* All that nobody has heard of ends. Then, when no worker is left, the rest. */
void vm_close(struct warden *w);
void vm_free(struct warden *w);
int vm_open(struct warden *w, struct err *e);
/* Not before all machines that there are were found again: their disks are nobody's until then. */
void vm_first_sweep(struct warden *w);
void vm_fail(struct warden *w, struct machine *m, int r, const struct err *e);
/* Whoever @m was for hears why; one for nobody just goes, and is not there any more. */
void vm_give_up(struct warden *w, struct machine *m, int r, struct err *e);
/* One that nobody hears of yet. */
int vm_new_machine(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* It boots for itself, without a template. */
int vm_boot_cold(struct warden *w, struct machine *m, struct err *e);
/* From its image, or its layers, on; again once it is known how machines run. */
int vm_begin(struct warden *w, struct machine *m, struct err *e);
/* Its image is known. */
int vm_looked(struct warden *w, struct machine *m, struct err *e);
/* It stands, and somebody wants it. */
void vm_let_go(struct warden *w, struct machine *m);
/* Another of the same kind, for who asks next. */
void vm_keep_ready(struct warden *w, const struct machine *like);
/* Its template is there. */
void vm_go_on(struct warden *w, struct machine *m);
void vm_loads(struct warden *w, struct machine *m, uint64_t ns);
void vm_tick(struct vms *v);

/* --- accel.c --- */
/*
 * Decides once how machines run: KVM where a trial shows that it works, unless told otherwise. Refuses what cannot be. It may take
 * a boot: until then vms.accel is 0, and machines wait (VM_TRIES).
 */
int vm_accel_decide(struct warden *w, struct err *e);
/* A trial's machine @m has booted, or not: it ends, and all who waited go on. */
void vm_accel_tried(struct warden *w, struct machine *m, int r, const struct err *e);
/* For how long @m may take for what an emulated one may take @ns: with KVM it is fast, or does not work. */
uint64_t vm_accel_patience(const struct warden *w, const struct machine *m, uint64_t ns);
/* Refuses to go on with a state that needs what is not here. */
int vm_accel_fits(const struct warden *w, enum vm_accel accel, struct err *e);
/*
 * @t did not boot. If it was to run with KVM, and the administrator leaves it to us: whoever waits for it, but for those with
 * layers, waits for an emulated one now.
 */
void vm_accel_instead(struct warden *w, struct vm_template *t, const struct err *e);
/* A machine has come up. With KVM: so that works, whatever some other one does with it. */
void vm_accel_ran(struct warden *w, const struct machine *m);
/*
 * @t did, in some way. If it is such an emulated one, and none ever came up with KVM: then it was KVM's fault, and no machine
 * uses that any more.
 */
void vm_accel_blame(struct warden *w, const struct vm_template *t);

/* --- doing.c --- */
/* One line for people: what it waits for. */
void vm_doing(const struct machine *m, char *ret, size_t size);

/* --- done.c --- */
/* A worker is done. */
void vm_worked(struct warden *w, struct work *work);
/* Side sockets and the clock. Then true when a machine that somebody waits for is up, or will never be. */
bool vm_done(struct warden *w, struct warden_done *ret);

/* --- flat.c --- */
int vm_flat_find(struct vms *v, const char *layer); /* stays the cache's; -1: not there */
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
/* It did not come up: what the jail or QEMU said may tell more. */
int vm_explain(struct machine *m, int r, struct err *e);
/* The last line that cloche-vmm or QEMU said, as far as it is one and somebody listened. "" when none. */
void vm_last_words(const struct machine *m, char *ret, size_t size);
/* What goes to the guest: nothing that is this sandbox's alone. */
void vm_guest_spec(const struct sandbox_spec *from, struct sandbox_spec *to);
uint32_t vm_cpus(const struct spec_limits *l);
/* Refuses more processors or memory than a machine can sensibly have on this host. */
int vm_fits(const struct spec_limits *l, struct err *e);

/* --- template.c --- */
/* What a machine of @spec is a clone of. @id: of the programs (vm_identity()). 0 or -ENOMEM. */
int vm_key(const struct sandbox_spec *spec, enum vm_accel accel, const uint8_t id[SHA256_SIZE], const uint8_t root[SHA256_SIZE],
	   const uint8_t usr[SHA256_SIZE], uint8_t ret[SHA256_SIZE]);
/* So that it stays. */
struct vm_template *vm_template_hold(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e);
/* The same; and it is looked for, or booted: its state tells. Refused when the tenant has too many under way. */
struct vm_template *vm_template_get(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e);
void vm_template_worked(struct warden *w, struct vm_work *x);
/* The machine that boots it has said TEMPLATED. */
void vm_template_booted(struct warden *w, struct vm_template *t, struct machine *m);
/* All who wait for it fail, too. */
void vm_template_fail(struct warden *w, struct vm_template *t, int r, const struct err *e);
void vm_template_drop(struct vm_template *t); /* a machine does not use it any more */
void vm_templates_end(struct vms *v);
void vm_templates_idle(struct vms *v, uint64_t now);
int vm_store_open(const char *path, char *ret_path, size_t size, struct err *e);
/* What dead wardens left half-made, disks of nobody, templates that nothing stands on any more. */
void vm_store_sweep(struct warden *w);

/* --- live.c --- */
int vm_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret);
int vm_group(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e);
int vm_group_fd(uint32_t number, struct err *e);
int vm_group_say(struct warden_sandbox *s, enum vm_type type, uint32_t number, struct err *e);
int vm_attach(struct warden_sandbox *s, int *ret_sock, struct err *e);
/* What its guest does about its way out, NULL: there is none. The jail's own network is what decides. */
int vm_steer(const struct machine *m, const struct steer_rules *rules, struct err *e);
/* One that was saved while it was paused stands until it is told so. */
int vm_run_again(const struct machine *m, struct err *e);
int vm_adopt(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e);
int vm_stat_page(struct err *e);
const struct vm_stat *vm_stat_map(int page);

/* --- layer.c --- */
/* Disks that layers add to a machine's chain: opened, oldest first. How many, or -errno. */
int vm_layer_disks(struct warden *w, const char (*ids)[ID_SIZE], uint32_t n, int *ret, unsigned max, struct err *e);
int vm_layer_meta(struct warden *w, const char *id, struct err *e); /* opened */
int vm_layer_pages(struct warden *w, const char *id, struct err *e);

/* --- chain.c --- */
static_assert(RECORD_DISKS == VM_OWN_MAX, "all of them are written down");
/* The first disk of its own, new and empty, above so many others: ->own[0]. */
int vm_own_first(struct warden *w, struct machine *m, unsigned below, struct err *e);
/* Those that a record names, and one that was begun. 0 or -errno. */
int vm_own_find(struct warden *w, struct warden_sandbox *s, const struct record_vm *rec);
void vm_own_record(const struct machine *m, struct record_vm *ret);
void vm_own_remove_all(struct warden *w, struct machine *m); /* their names */
/* What seal_start() needs of the machine; from then on its side socket is the worker's. */
int vm_seal_begin(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e);
/* It is the machine's again, with the disks it has now; @seal: NULL when it never started, and @from is taken back. */
void vm_seal_end(struct warden *w, struct warden_sandbox *s, struct seal_source *from, const struct seal *seal);
