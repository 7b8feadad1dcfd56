/*
 * Tests whether this kernel's KVM runs a virtual machine. It is not enough that /dev/kvm opens and creates one: on some
 * hosts, most of them virtual machines themselves, the first instruction fails. So a virtual machine of one page is run.
 */
#pragma once

enum kvm_state {
	KVM_WORKS,
	/*
	 * Likewise, but this host is a machine itself: seen there are some where instructions run and a kernel never boots, without
	 * an error. So a boot has to show it (vm/host/accel.c).
	 */
	KVM_NESTED,
	KVM_ABSENT, /* no such device, or nothing behind it */
	KVM_DENIED, /* there, but not for us */
	KVM_FAILS, /* opens, and does not run */
};

struct kvm_trial {
	enum kvm_state state;
	char why[160]; /* one line, whatever the state */
	char remedy[160]; /* "" when it works */
};

/*
 * Takes a few milliseconds, at most some seconds on a host that hangs; a child does it, gone when this returns. Any thread's.
 */
void kvm_try(struct kvm_trial *ret);
/* As kvm_try(), with another device: for tests. */
void kvm_try_device(const char *path, struct kvm_trial *ret);
