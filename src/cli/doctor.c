/* The checks of `cloche doctor`, and how their results are printed. */
#include "cli/doctor.h"
#include "base/base.h"
#include "base/json.h"
#include "base/sys.h"
#include "cli/attack.h"
#include "cli/devices.h"
#include "run/engine.h"
#include "linux/cgroup.h"
#include "linux/features.h"
#include "linux/kvm.h"
#include "vm/host/files.h"
#include "vm/host/verdict.h"

#include <unistd.h>

struct report {
	struct feature feature[FEATURES_MAX];
	size_t n;
	int cgroup_version; /* 0: none that can be used */
	unsigned controllers;
	bool run_works; /* a real sandbox was started */
	uint64_t run_ms;
	char run_error[300];
	bool vm; /* what a machine needs is there */
	struct err vm_error;
	struct kvm_trial kvm;
	bool accel_kvm; /* machines run with it */
	char accel_why[160], again[600]; /* and how to have it tried again, "": there is nothing to try */
};

static const struct {
	const char *name;
	unsigned controller; /* 0: enforced without one */
} limits[] = {
	{ "memory", CGROUP_BIT(CGROUP_MEMORY) },
	{ "pids", CGROUP_BIT(CGROUP_PIDS) },
	{ "cpus", CGROUP_BIT(CGROUP_CPU) },
	{ "io", CGROUP_BIT(CGROUP_IO) },
	{ "disk", 0 },
	{ "nofile", 0 },
	{ "cpu-time", CGROUP_BIT(CGROUP_CPUACCT) },
	{ "timeout", 0 },
	{ "output", 0 },
};

static bool enforced(const struct report *r, size_t i)
{
	return !limits[i].controller || (r->controllers & limits[i].controller);
}

/* No list of features proves that the whole works: start one. */
static void try_run(struct report *r)
{
	AUTO(attack_result_done) struct attack_result res = ATTACK_RESULT_INIT;
	struct err e = { 0 };
	int rc = attack_self((const char *[]){ "run", "--timeout", "20s", "--", "/bin/true", NULL }, 30, &res, &e);

	r->run_works = rc == 0 && res.status == 0;
	r->run_ms = res.ms;
	if (r->run_works)
		return;
	if (rc < 0)
		snprintf(r->run_error, sizeof(r->run_error), "%s", e.msg);
	else if (res.err.len)
		snprintf(r->run_error, sizeof(r->run_error), "%.*s", (int)strcspn(buf_str(&res.err), "\n"),
			 buf_str(&res.err));
	else
		snprintf(r->run_error, sizeof(r->run_error), "exit status %d", res.status);
}

/* How the first machine would run, tried as it would be. */
static void try_machine(struct report *r)
{
	const struct engine_opts o = { .one_shot = true };
	struct engine *g = NULL;
	struct err e = { 0 };
	char path[512];

	snprintf(r->accel_why, sizeof(r->accel_why), "%s", r->kvm.why);
	if (!r->vm)
		return;
	if (engine_new(&o, &g, &e) < 0 || engine_accel(g, &r->accel_kvm, r->accel_why, sizeof(r->accel_why), &e) < 0) {
		r->vm = false;
		r->vm_error = e;
	}
	engine_free(g);
	vm_verdict_path(path, sizeof(path));
	if (path[0] && access(path, F_OK) == 0)
		snprintf(r->again, sizeof(r->again), "rm %s", path);
}

static void examine(struct report *r)
{
	struct cgroup_host h;

	r->n = features_check(r->feature, ARRAY_LEN(r->feature));
	if (cgroup_host_open(&h, NULL) == 0) {
		r->cgroup_version = h.version;
		r->controllers = h.have;
		cgroup_host_done(&h);
	}
	try_run(r);
}

static void examine_machines(struct report *r)
{
	kvm_try(&r->kvm);
	r->vm = vm_ready(&r->vm_error) == 0;
	try_machine(r);
}

static unsigned count(const struct report *r, enum feature_state s)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += r->feature[i].state == s;
	return n;
}

static int print_json(const struct report *r)
{
	static const char *const states[] = { "ok", "missing", "optional_missing" };
	static const char *const kvm[] = { [KVM_WORKS] = "works",
					   [KVM_NESTED] = "nested",
					   [KVM_ABSENT] = "absent",
					   [KVM_DENIED] = "denied",
					   [KVM_FAILS] = "fails" };
	AUTO(buf_done) struct buf b = BUF_INIT(5 * MIB), devices = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_bool(&j, "ok", r->run_works);
	if (devices_list("list", &devices) == 0 && devices.len > 1)
		jout_raw(&j, "devices", devices.data, devices.len - 1);
	else
		jout_null(&j, "devices");
	jout_array(&j, "features");
	for (size_t i = 0; i < r->n; i++) {
		const struct feature *f = &r->feature[i];

		jout_object(&j, NULL);
		jout_str(&j, "id", f->id);
		jout_str(&j, "name", f->name);
		jout_str(&j, "state", states[f->state]);
		jout_str(&j, "detail", f->detail);
		jout_str(&j, "remedy", f->remedy[0] ? f->remedy : NULL);
		jout_end(&j);
	}
	jout_end(&j);
	jout_i64(&j, "cgroup_version", r->cgroup_version);
	jout_object(&j, "limits");
	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		jout_bool(&j, limits[i].name, enforced(r, i));
	jout_end(&j);
	jout_object(&j, "run");
	jout_bool(&j, "works", r->run_works);
	jout_u64(&j, "ms", r->run_ms);
	jout_str(&j, "error", r->run_works ? NULL : r->run_error);
	jout_end(&j);
	jout_object(&j, "vm");
	jout_bool(&j, "ready", r->vm);
	jout_str(&j, "accelerator", r->accel_kvm ? "kvm" : "tcg");
	jout_str(&j, "kvm", kvm[r->kvm.state]);
	jout_str(&j, "why", r->accel_why);
	jout_str(&j, "try_again", r->again[0] ? r->again : NULL);
	jout_str(&j, "error", r->vm ? NULL : r->vm_error.msg);
	jout_str(&j, "remedy", r->vm || !r->vm_error.remedy[0] ? NULL : r->vm_error.remedy);
	jout_end(&j);
	jout_end(&j);
	if (jout_done(&j) < 0 || buf_addc(&b, '\n') < 0)
		return -ENOMEM;
	return fd_write_all(STDOUT_FILENO, b.data, b.len);
}

static void print_limits(const struct report *r)
{
	const char *sep = "";

	if (r->controllers)
		printf("\nControl groups: version %d.", r->cgroup_version);
	else
		printf("\nControl groups: none that this process may use.");
	printf(" Enforced limits: ");
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		if (!enforced(r, i))
			continue;
		printf("%s%s", sep, limits[i].name);
		sep = ", ";
	}
	sep = "; not: ";
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		if (enforced(r, i))
			continue;
		printf("%s%s", sep, limits[i].name);
		sep = ", ";
	}
	printf(".\n");
}

static void print_table(const struct report *r)
{
	static const char *const words[] = { "ok", "MISSING", "optional" };
	static const char *const colors[] = { "\033[32m", "\033[1;31m", "\033[33m" };
	const bool tty = isatty(STDOUT_FILENO);

	for (size_t i = 0; i < r->n; i++) {
		const struct feature *f = &r->feature[i];

		printf("%s%-8s%s  %-30s %s\n", tty ? colors[f->state] : "", words[f->state], tty ? "\033[0m" : "",
		       f->name, f->detail);
		if (f->remedy[0])
			printf("          remedy: %s\n", f->remedy);
	}
	print_limits(r);
	if (r->run_works)
		printf("`cloche run` as uid %u: works; a sandbox started and ended in %llu ms.\n", geteuid(),
		       (unsigned long long)r->run_ms);
	else
		printf("`cloche run` as uid %u: fails: %s\n", geteuid(), r->run_error);
}

/* Where a boot decides about KVM that takes seconds, so what is known is on the screen by then. */
static void print_machines(struct report *r)
{
	const bool tty = isatty(STDOUT_FILENO);

	if (tty)
		printf("Virtual machines (--isolation vm): testing, for up to ten seconds...");
	fflush(stdout);
	examine_machines(r);
	if (tty)
		printf("\r\033[K");
	if (r->vm)
		printf("Virtual machines (--isolation vm): available; %s: %s.%s%s%s\n",
		       r->accel_kvm ? "with KVM" : "emulated (TCG)", r->accel_why,
		       r->again[0] ? " To test it again: `" : "", r->again, r->again[0] ? "`." : "");
	else
		printf("Virtual machines (--isolation vm): not available: %s%s%s\n", r->vm_error.msg,
		       r->vm_error.remedy[0] ? "; " : "", r->vm_error.remedy);
	printf("%s: %u of %zu features, %u missing, %u optional ones missing.\n",
	       r->run_works ? "Sandboxes can run here" : "Sandboxes cannot run here", count(r, FEATURE_OK), r->n,
	       count(r, FEATURE_MISSING), count(r, FEATURE_OPTIONAL_MISSING));
}

static void print_devices(void)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * MIB);

	if (devices_list("text", &b) < 0)
		printf("Devices (--gpu, --device): not available: cloche-devices is not installed, or failed\n");
	else
		fputs(buf_str(&b), stdout);
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: cloche doctor [--attack [--no-bombs]] [--json]\n"
		"Checks what this host can do, feature by feature, and starts a sandbox.\n"
		"  --attack    run the escape and abuse probes in sandboxes on this host\n"
		"  --no-bombs  with --attack: leave out the probes that run into limits and load the host for some seconds\n"
		"  --json      print the result as JSON\n");
}

int cmd_doctor(int argc, char **argv)
{
	AUTO_FREE struct report *r = NULL;
	bool json = false, attack = false, bombs = true;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			json = true;
		} else if (!strcmp(argv[i], "--attack")) {
			attack = true;
		} else if (!strcmp(argv[i], "--no-bombs")) {
			bombs = false;
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			usage(stdout);
			return 0;
		} else {
			fprintf(stderr, "cloche: unknown option %s; see `cloche doctor --help`\n", argv[i]);
			return 125;
		}
	}
	if (!attack && !bombs) {
		fprintf(stderr, "cloche: --no-bombs can only be used with --attack\n");
		return 125;
	}
	if (attack)
		return attack_run(json, bombs);
	r = calloc(1, sizeof(*r));
	if (!r) {
		fprintf(stderr, "cloche: out of memory\n");
		return 125;
	}
	examine(r);
	if (!json) {
		print_table(r);
		print_devices();
		print_machines(r);
		return r->run_works ? 0 : 1;
	}
	examine_machines(r);
	if (print_json(r) < 0)
		return 125;
	return r->run_works ? 0 : 1;
}
