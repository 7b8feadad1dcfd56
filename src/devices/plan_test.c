#include "devices/plan.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file as text; ' stands for ", since most of it is quoted. */
struct world {
	char dir[40];
	struct catalog c;
	struct device_plan plan;
	struct err e;
};

static void world_open(struct world *w)
{
	char path[64];

	memset(w, 0, sizeof(*w));
	snprintf(w->dir, sizeof(w->dir), "/tmp/cloche-devices-XXXXXX");
	if (!mkdtemp(w->dir))
		abort();
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%u", w->dir, i);
		if (mkdir(path, 0755) < 0)
			abort();
	}
}

static void world_close(struct world *w)
{
	char command[64];

	catalog_done(&w->c);
	snprintf(command, sizeof(command), "%s", w->dir);
	for (unsigned i = 0; i < 2; i++)
		for (int n = 'a'; n < 'f'; n++) {
			snprintf(command, sizeof(command), "%s/%u/%c.yaml", w->dir, i, n);
			unlink(command);
		}
	snprintf(command, sizeof(command), "%s/0", w->dir);
	rmdir(command);
	snprintf(command, sizeof(command), "%s/1", w->dir);
	rmdir(command);
	rmdir(w->dir);
}

static void put(struct world *w, unsigned folder, char name, const char *text)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%u/%c.yaml", w->dir, folder, name);
	f = fopen(path, "w");
	if (!f)
		abort();
	for (const char *p = text; *p; p++)
		fputc(*p == '\'' ? '"' : *p, f);
	fclose(f);
	if (chmod(path, 0644) < 0)
		abort();
}

static int load(struct world *w)
{
	char folder[2][64];
	struct catalog_opts o = {
		.folder = { folder[0], folder[1] }, .folders = 2, .root = "/nowhere", .owner = geteuid()
	};

	for (unsigned i = 0; i < 2; i++)
		snprintf(folder[i], sizeof(folder[i]), "%s/%u", w->dir, i);
	return catalog_load(&o, &w->c, &w->e);
}

static int plan(struct world *w, const char *name, bool host)
{
	const struct plan_opts o = { .root = "/nowhere", .host = host };

	w->e = (struct err){ 0 };
	return plan_make(&w->c, &name, 1, &o, &w->plan, &w->e);
}

/* The error of one file; "" when it is good. */
static const char *judge(const char *text)
{
	static char msg[240];
	struct tree_doc doc = { 0 };
	struct err e = { 0 };
	char copy[4096];
	size_t n = 0;

	for (; text[n] && n < sizeof(copy); n++)
		copy[n] = text[n] == '\'' ? '"' : text[n];
	if (tree_parse(copy, n, &doc, &e) == 0)
		(void)cdi_check(doc.root, &e);
	tree_done(&doc);
	snprintf(msg, sizeof(msg), "%s", e.msg);
	return msg;
}

#define HEAD "cdiVersion: 0.6.0\nkind: vendor.com/class\ndevices:\n- name: one\n  containerEdits:\n"
#define JUDGE(text, want)                                                                                              \
	do {                                                                                                           \
		const char *is_ = judge(text);                                                                         \
		if (!strstr(is_, want) || (!(want)[0] && is_[0]))                                                      \
			TEST_FAIL("'%s', not '%s'", is_, want);                                                        \
	} while (0)

TEST(a_file_is_json_or_yaml_and_wrong_ones_are_refused_with_the_line)
{
	JUDGE("{'cdiVersion':'0.3.0','kind':'v.com/c','devices':[{'name':'a','containerEdits':{'env':['A=b']}}]}", "");
	JUDGE(HEAD "    env: [A=b]\n", "");
	JUDGE("", "it is empty");
	JUDGE("[]", "must be an object");
	JUDGE("{}", "'cdiVersion' is missing");
	JUDGE("cdiVersion: 0.2.0\n", "not one of 0.3.0 to 1.1.0");
	JUDGE("cdiVersion: 9.0.0\n", "not one of");
	JUDGE("cdiVersion: 0.6\n", "must be a string");
	JUDGE("cdiVersion: '0.6.0'\nkind: vendor\ndevices: [{name: a, containerEdits: {env: [A=b]}}]\n",
	      "must be VENDOR/CLASS");
	JUDGE("cdiVersion: '0.6.0'\nkind: vendor.com/c\ndevices: []\n", "at least one device");
	JUDGE("cdiVersion: '0.6.0'\nkind: vendor.com/c\n", "'devices' is missing");
	JUDGE("cdiVersion: '0.6.0'\nkind: vendor.com/c\ndevices: [{name: a, containerEdits: {}}]\n", "has no edits");
	JUDGE("cdiVersion: '0.6.0'\nkind: vendor.com/c\ndevices: [{name: 1, containerEdits: {env: [A=b]}}]\n",
	      "'name' must be a string");
	JUDGE(HEAD "    env: [A]\n", "must be NAME=VALUE");
	JUDGE(HEAD "    envs: [A=b]\n", "line 6: unknown field 'envs'");
	JUDGE(HEAD "    env: {A: b}\n", "must be a list");
	JUDGE(HEAD "    env: [A=b]\n    env: [A=c]\n", "is there twice");
	JUDGE(HEAD "    env: [A=b]\n- name: one\n  containerEdits: {env: [A=b]}\n", "device 'one' is there twice");
	JUDGE(HEAD "    deviceNodes: [{path: /dev/a, type: x}]\n", "must be b, c, u or p");
	JUDGE(HEAD "    deviceNodes: [{path: /dev/a, permissions: rx}]\n", "letters r, w and m");
	JUDGE(HEAD "    deviceNodes: [{path: /dev/a, major: one}]\n", "must be a whole number");
	JUDGE(HEAD "    deviceNodes: [{path: /dev/a, uid: -1}]\n", "must be between");
	JUDGE(HEAD "    deviceNodes: [{hostPath: /dev/a}]\n", "'path' is missing");
	JUDGE(HEAD "    hooks: [{hookName: never, path: /bin/x}]\n", "a kind of hook");
	JUDGE(HEAD "    mounts: [{hostPath: /a}]\n", "'containerPath' is missing");
}

TEST(fields_need_the_version_that_has_them)
{
#define OLD(v) "cdiVersion: '" v "'\nkind: vendor.com/class\ndevices:\n- name: one\n  containerEdits:\n    env: [A=b]\n"
	JUDGE(OLD("0.4.0") "    deviceNodes: [{path: /dev/a, hostPath: /dev/b}]\n",
	      "'hostPath' needs cdiVersion 0.5.0");
	JUDGE(OLD("0.5.0") "    deviceNodes: [{path: /dev/a, hostPath: /dev/b}]\n", "");
	JUDGE(OLD("0.3.0") "    mounts: [{hostPath: /a, containerPath: /b, type: bind}]\n",
	      "'type' needs cdiVersion 0.4.0");
	JUDGE(OLD("0.5.0") "  annotations: {a: b}\n", "'annotations' needs cdiVersion 0.6.0");
	JUDGE(OLD("0.6.0") "    additionalGids: [44]\n", "needs cdiVersion 0.7.0");
	JUDGE(OLD("1.0.0") "    netDevices: [{hostInterfaceName: eth0, name: eth1}]\n", "needs cdiVersion 1.1.0");
	JUDGE("cdiVersion: '0.4.0'\nkind: vendor.com/c\ndevices: [{name: '0', containerEdits: {env: [A=b]}}]\n",
	      "begins with a digit");
	JUDGE("cdiVersion: '0.5.0'\nkind: vendor.com/c.d\ndevices: [{name: '0', containerEdits: {env: [A=b]}}]\n",
	      "a class with dots");
}

TEST(aliases_tags_depth_and_size_are_bounded)
{
	static char deep[200], big[TREE_BYTES + 2];

	JUDGE("a: &x [1]\nb: *x\n", "anchors, aliases and tags");
	JUDGE("a: &x {b: *x}\n", "anchors, aliases and tags");
	JUDGE("a: !!binary aGk=\n", "anchors, aliases and tags");
	JUDGE("---\na: b\n---\nc: d\n", "more than one document");
	JUDGE("a: b\n\tc: d\n", "line 2");
	JUDGE("? [a]\n: b\n", "a key must be a text");
	memset(deep, '[', sizeof(deep) - 1);
	JUDGE(deep, "deeper than 16");
	memset(big, ' ', sizeof(big) - 1);
	CHECK_EQ(tree_parse(big, sizeof(big) - 1, &(struct tree_doc){ 0 }, NULL), -E2BIG);
	for (size_t i = 0; i + 1 < sizeof(big); i++)
		big[i] = i ? ',' : '[';
	for (size_t i = 1; i + 2 < sizeof(big); i += 2)
		big[i] = '1';
	CHECK(tree_parse(big, sizeof(big) - 2, &(struct tree_doc){ 0 }, NULL) < 0);
}

TEST(names_are_qualified)
{
	size_t n;

	CHECK_EQ(cdi_check_name("nvidia.com/gpu=0", &n, NULL), 0);
	CHECK_EQ(n, 14);
	CHECK_EQ(cdi_check_name("v.com/c=GPU-1:0", &n, NULL), 0);
	CHECK_EQ(cdi_check_name("gpu=0", &n, NULL), -EINVAL);
	CHECK_EQ(cdi_check_name("v.com/c", &n, NULL), -EINVAL);
	CHECK_EQ(cdi_check_name("v.com/c=", &n, NULL), -EINVAL);
	CHECK_EQ(cdi_check_name("v.com/c=..", &n, NULL), -EINVAL);
	CHECK_EQ(cdi_check_name("v.com/c/d=0", &n, NULL), -EINVAL);
	CHECK_EQ(cdi_check_name("../etc=0", &n, NULL), -EINVAL);
}

TEST(the_later_folder_wins_and_two_files_of_one_folder_conflict)
{
	struct world w;

	world_open(&w);
	put(&w, 0, 'a', HEAD "    env: [A=static]\n");
	put(&w, 1, 'a', HEAD "    env: [A=dynamic]\n");
	put(&w, 1, 'b', "cdiVersion: broken\n");
	CHECK_EQ(load(&w), 0);
	CHECK_EQ(plan(&w, "vendor.com/class=one", false), 0);
	CHECK(!strcmp(w.plan.env, "A=dynamic"));
	CHECK_EQ(plan(&w, "vendor.com/class=two", false), -ENOENT);
	CHECK(strstr(w.e.remedy, "b.yaml") && strstr(w.e.remedy, "'broken'"));
	catalog_done(&w.c);
	put(&w, 1, 'c', HEAD "    env: [A=other]\n");
	CHECK_EQ(load(&w), 0);
	CHECK_EQ(plan(&w, "vendor.com/class=one", false), -EEXIST);
	CHECK(strstr(w.e.msg, "a.yaml") && strstr(w.e.msg, "c.yaml"));
	world_close(&w);
}

TEST(a_file_that_others_can_write_is_not_read)
{
	struct world w;
	char path[64];

	world_open(&w);
	put(&w, 0, 'a', HEAD "    env: [A=b]\n");
	snprintf(path, sizeof(path), "%s/0/a.yaml", w.dir);
	CHECK_EQ(chmod(path, 0666), 0);
	CHECK_EQ(load(&w), 0);
	CHECK_EQ(plan(&w, "vendor.com/class=one", false), -ENOENT);
	CHECK(strstr(w.c.file[0].e.msg, "could change it"));
	world_close(&w);
}

#define PLAN(edits, want, text)                                                                                        \
	do {                                                                                                           \
		put(&w, 0, 'a', HEAD edits);                                                                           \
		catalog_done(&w.c);                                                                                    \
		CHECK_EQ(load(&w), 0);                                                                                 \
		CHECK_EQ(plan(&w, "vendor.com/class=one", false), want);                                               \
		if (!strstr(w.e.msg, text))                                                                            \
			TEST_FAIL("'%s', not '%s'", w.e.msg, text);                                                    \
	} while (0)

TEST(nodes_are_what_the_specification_says)
{
	struct world w;

	world_open(&w);
	PLAN("    deviceNodes: [{path: /dev/of/mine, hostPath: /dev/null, permissions: r, fileMode: 0640}]\n", 0, "");
	CHECK_EQ(w.plan.nnodes, 1);
	CHECK(!strcmp(w.plan.node[0].to, "of/mine") && !strcmp(w.plan.node[0].from, "/dev/null"));
	CHECK_EQ(w.plan.node[0].major, 1);
	CHECK_EQ(w.plan.node[0].minor, 3);
	CHECK_EQ(w.plan.node[0].may, DEVICE_READ);
	CHECK_EQ(w.plan.node[0].mode, 0640);
	PLAN("    deviceNodes: [{path: /dev/mine, hostPath: /dev/null, type: c, major: 1, minor: 3}]\n", 0, "");
	PLAN("    deviceNodes: [{path: /dev/mine, hostPath: /dev/null, minor: 5}]\n", -ENODEV,
	     "character 1:3, not what");
	PLAN("    deviceNodes: [{path: /dev/mine, hostPath: /dev/null, type: b}]\n", -ENODEV,
	     "not what its specification says");
	PLAN("    deviceNodes: [{path: /dev/mine, hostPath: /dev/null, type: p}]\n", -ENODEV,
	     "not what its specification says");
	PLAN("    deviceNodes: [{path: /dev/none-of-this-name}]\n", -ENOENT, "No such file");
	PLAN("    deviceNodes: [{path: /dev/mine, hostPath: /etc/passwd}]\n", -ENOTBLK, "not a device");
	PLAN("    deviceNodes: [{path: /dev/../etc/mine, hostPath: /dev/null}]\n", -EINVAL, "'..' is not allowed");
	PLAN("    deviceNodes: [{path: /etc/mine, hostPath: /dev/null}]\n", -EINVAL, "must be below /dev");
	PLAN("    deviceNodes: [{path: /dev/null}]\n", -EINVAL, "none that every sandbox has");
	PLAN("    deviceNodes: [{path: /dev/pts/0, hostPath: /dev/null}]\n", -EINVAL, "none that every sandbox has");
	CHECK_EQ(plan(&w, "/dev/zero", false), -EINVAL);
	CHECK_EQ(plan(&w, "/dev/kmsg", false), access("/dev/kmsg", F_OK) < 0 ? -ENOENT : 0);
	world_close(&w);
}

TEST(mounts_are_read_only_and_never_in_the_sandboxs_own_places)
{
	struct world w;

	world_open(&w);
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /opt/x, options: [ro, nosuid, nodev, rbind, rprivate]}]\n",
	     0, "");
	CHECK_EQ(w.plan.nmounts, 1);
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /opt/x, options: [rw]}]\n", -EOPNOTSUPP,
	     "option 'rw'");
	PLAN("    mounts: [{hostPath: tmpfs, containerPath: /opt/x}]\n", -EINVAL, "must be an absolute path");
	PLAN("    mounts: [{hostPath: /tmp, containerPath: /opt/x, type: tmpfs}]\n", -EOPNOTSUPP, "of type 'tmpfs'");
	PLAN("    mounts: [{hostPath: /nowhere/at/all, containerPath: /opt/x}]\n", -ENOENT, "No such file");
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /proc/cmdline}]\n", -EINVAL, "reserved");
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /dev/x}]\n", -EINVAL, "reserved");
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /opt/../etc}]\n", -EINVAL, "'..' is not allowed");
	PLAN("    intelRdt: {closID: a}\n", -ENOENT, "none of that name"); /* needs 0.7.0: the file is refused */
	world_close(&w);
}

TEST(hooks_that_are_known_become_mounts_and_others_are_refused_by_name)
{
	struct world w;
	bool link = false;

	world_open(&w);
	PLAN("    mounts: [{hostPath: /etc/passwd, containerPath: /opt/lib/libx.so.1.2}]\n"
	     "    hooks:\n"
	     "    - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, create-symlinks, --link, libx.so.1::/opt/lib/libx.so, --link=libx.so.1.2::/opt/lib/libx.so.1]}\n"
	     "    - {hookName: createContainer, path: /usr/bin/nvidia-ctk, args: [nvidia-ctk, hook, chmod, --mode, '755', --path, /dev/dri]}\n",
	     0, "");
	for (unsigned i = 0; i < w.plan.nmounts; i++)
		link = link || (!strcmp(w.plan.mount[i].to, "/opt/lib/libx.so") &&
				!strcmp(w.plan.mount[i].from, "/etc/passwd"));
	CHECK(link);
	CHECK_EQ(w.plan.nmounts, 3);
	PLAN("    hooks: [{hookName: createContainer, path: /usr/bin/nvidia-ctk, args: [nvidia-ctk, hook, reboot, --now]}]\n",
	     -EOPNOTSUPP, "nvidia-ctk hook reboot --now");
	PLAN("    hooks: [{hookName: createContainer, path: /bin/vendor-hook}]\n", -EOPNOTSUPP, "hook vendor-hook");
	PLAN("    hooks: [{hookName: createContainer, path: /usr/bin/nvidia-ctk, args: [nvidia-ctk, hook, chmod, --mode, '777', --path, /etc]}]\n",
	     -EOPNOTSUPP, "chmod");
	world_close(&w);
}

/* The C library itself: its name for the linker is known. */
TEST(libraries_are_mounted_by_the_name_that_programs_load)
{
	static const char *const places[] = { "/usr/lib/x86_64-linux-gnu/libc.so.6",
					      "/usr/lib/aarch64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6" };
	char text[1000], name[100];
	size_t at = 0;
	struct world w;
	bool there = false;

	while (at < ARRAY_LEN(places) && access(places[at], R_OK) < 0)
		at++;
	CHECK(at < ARRAY_LEN(places));
	{
		AUTO_CLOSE int fd = open(places[at], O_RDONLY | O_CLOEXEC);

		CHECK_EQ(elf_soname(fd, name, sizeof(name)), 0);
		CHECK(!strcmp(name, "libc.so.6"));
	}
	world_open(&w);
	snprintf(
		text, sizeof(text),
		HEAD
		"    env: [LD_LIBRARY_PATH=/opt/old]\n    mounts: [{hostPath: %s, containerPath: /opt/lib/libc-2.so}]\n    hooks: [{hookName: createContainer, path: "
		"/usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache, --folder, /opt/lib]}]\n",
		places[at]);
	put(&w, 0, 'a', text);
	CHECK_EQ(load(&w), 0);
	CHECK_EQ(plan(&w, "vendor.com/class=one", false), 0);
	for (unsigned i = 0; i < w.plan.nmounts; i++)
		there = there || !strcmp(w.plan.mount[i].to, PLAN_LIBRARIES "/libc.so.6");
	CHECK(there);
	CHECK(!strcmp(w.plan.env, "LD_LIBRARY_PATH=" PLAN_LIBRARIES));
	world_close(&w);
}
