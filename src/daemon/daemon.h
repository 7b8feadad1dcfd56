/* What the supervisor finds out and opens, and hands to the API process by fork. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "layers/manifest.h"
#include "service/network/conf.h"

#define DAEMON_LISTENERS 8
#define DAEMON_PATH 1024
#define DAEMON_KEY 1026 /* a passphrase, with the end of its line */

struct daemon_config {
	char data[DAEMON_PATH]; /* absolute, real */
	struct {
		char text[128]; /* as given: "127.0.0.1:7070", "[::1]:7070", "unix:/path" */
		bool tls;
	} listen[DAEMON_LISTENERS];
	unsigned nlisten;
	char tls_cert[DAEMON_PATH], tls_key[DAEMON_PATH]; /* "" = none */
	char token_file[DAEMON_PATH]; /* "" = none */
	char user[64]; /* the user of the API process */
	char images[DAEMON_PATH]; /* "" = only `host` */
	char image_auth[DAEMON_PATH]; /* logins at registries; "" = none, as the next two */
	char image_ca[DAEMON_PATH]; /* authorities that registries are trusted by, besides the system's */
	char image_registries[DAEMON_PATH]; /* a registries.conf: mirrors, and which are insecure */
	uint64_t image_timeout_ms; /* of silence of a registry */
	char layers[DAEMON_PATH]; /* where checkpoints are; "" = "layers" below ->data */
	char vm[DAEMON_PATH]; /* where templates of virtual machines are; "" = "vm" below ->data */
	char vm_accel[8]; /* auto, tcg, kvm */
	unsigned sandbox_sockets; /* of the internet, where BPF bounds them; 0 = by its memory */
	unsigned tenant_share; /* percent of the host's pools for all sandboxes of a tenant */
	unsigned warm_contexts; /* kept ready for runs of each kind */
	unsigned vm_ready; /* machines kept ready for each template in use */
	char allow_mount[16][DAEMON_PATH], allow_mount_tenant[16][40]; /* tenant "": all of them */
	char allow_device[16][96], allow_device_tenant[16][40]; /* likewise */
	unsigned nallow_device;
	char cdi_folders[512]; /* of specifications of devices, with colons; "" = the usual ones */
	char export_trust[16][80]; /* keys of other daemons, whose exports are taken with `verify` */
	unsigned nexport_trust;
	unsigned nallow_mount;
	unsigned pool; /* sandboxes kept ready */
	bool encrypt_memory; /* images of it, on the disk */
	bool share_memory; /* among sandboxes from one memory image */
	unsigned conns_max;
	bool audit_sync_always, audit_output; /* keep the output itself in the audit log */
	bool stop_sandboxes;
	uint64_t spool_time_ms, spool_max; /* per exec and stream */
	uint64_t spool_total; /* all of them */
	/* What a create may ask for at most, and what it gets when silent; 0 max = no bound of ours. */
	uint64_t memory, memory_max, disk, disk_max, output_limit;
	uint32_t cpu_milli, cpu_milli_max, pids, pids_max, nofile;
	uint64_t exec_timeout_ms, exec_timeout_max_ms;
	unsigned sandboxes_max;
	char ports_domain[128]; /* "" = none */
	char noid_isolation[16]; /* auto, container, vm */
	char secrets_key_command[DAEMON_PATH]; /* writes the key of all secrets; "" = a file of the data folder */
	char secrets_old_key_command[DAEMON_PATH]; /* the one of before; "" = there is none */
	struct net_conf network;
};

struct daemon_start {
	const struct daemon_config *config;
	int listener[DAEMON_LISTENERS]; /* as config->listen; then the unix socket of the data folder: */
	int unix_listener;
	int warden_place; /* O_PATH of the warden's listening socket: connect by /proc/self/fd/N */
	int egress_place; /* cloche-egress's, likewise */
	int ready; /* write one byte when serving; the supervisor then notifies systemd and prints the URL */
	int life; /* readable when the supervisor is gone */
	uid_t owner; /* the user that started the daemon: may use the unix socket */
	char token[160]; /* an admin token to know from now on, "" = none */
	bool kvm; /* virtual machines run with KVM, or are refused: by the test at the start */
	const char *accel_why; /* one line, stays */
	const uint8_t *secrets_key; /* what secrets_key_command wrote, NULL = there is none */
	size_t secrets_key_len;
	const uint8_t *secrets_old_key; /* secrets_old_key_command, likewise */
	size_t secrets_old_key_len;
	bool beside; /* there were layers, notes of rows, or sandboxes that run when the daemon was started */
	bool recover; /* the database is to be rebuilt, and what it does not know is kept */
	const struct manifest *layers; /* then: what it is rebuilt from when there are no notes; NULL = there are */
	unsigned nlayers;
};

/* With what that process ends when the database is missing, or not the one that belongs here: trying again is of no use. */
#define DAEMON_EXIT_STATE 76

/*
 * The API process, after the fork: opens state and audit, drops to its user, confines itself, serves until SIGTERM has
 * drained it. Returns its exit code. (src/daemon/serve.c)
 */
int daemon_serve(const struct daemon_start *s);
