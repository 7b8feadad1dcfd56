#!/usr/bin/busybox sh
# The tests that run inside the guest, as root, with version 2 of control groups only.
#
# A case is `begin NAME`, then commands and checks, then `end`. `run` keeps a command's output and status; a check that
# does not hold adds a line to the reasons, and `end` prints the verdict. Every `end` also looks for what a sandbox may
# have left behind: groups, mounts, processes, files.
here=/opt/cloche
C=$here/cloche
T=/dev/shm/v2
only=$(cat $here/only 2>/dev/null)
n=0 passed=0 failed=0
mkdir -p $T
echo "guest.sh begins" >/dev/kmsg

uptime_s() { cut -d . -f 1 /proc/uptime; }

begin() {
	name=$1
	: >$T/why
	: >$T/out
	: >$T/err
	began=$(uptime_s)
	rc=
	ran=no
	case $name in *"$only"*) return 0 ;; esac
	return 1
}

why() { echo "$*" >>$T/why; }

end() {
	left_behind >>$T/why
	n=$((n + 1))
	if [ ! -s $T/why ]; then
		passed=$((passed + 1))
		echo "ok $n - $name"
		took=$(($(uptime_s) - began))
		[ $took -lt 8 ] || echo "# took $took s"
		return
	fi
	failed=$((failed + 1))
	echo "not ok $n - $name # $(head -n 1 $T/why)"
	sed 's/^/# /' $T/why
	if [ $ran = yes ]; then
		echo "#   command: $cmd"
		echo "#   status:  $rc"
		# awk ends every line, also one that was cut
		head -c 3000 $T/out | awk '{ print "#   stdout: " $0 }'
		head -c 3000 $T/err | awk '{ print "#   stderr: " $0 }'
	fi
}

# --- running --------------------------------------------------------------------------------------------------------

patience=60
run() {
	cmd=$*
	ran=yes
	/usr/bin/timeout -s KILL $patience "$@" >$T/out 2>$T/err </dev/null # busybox's leaves a process behind
	rc=$?
}

box() { run $C run "$@"; }

rc_is() { [ "$rc" = "$1" ] || why "exit status $rc, not $1"; }
out_is() { [ "$(cat $T/out)" = "$1" ] || why "stdout is not: $1"; }
out_has() { grep -q -- "$1" $T/out || why "stdout lacks: $1"; }
err_has() { grep -q -- "$1" $T/err || why "stderr lacks: $1"; }
flat() { tr -d ' \n\t' <$T/out; }
cause_is() { flat | grep -q "\"cause\":\"$1\"" || why "the verdict's cause is not $1"; }
json_has() { flat | grep -q -- "$1" || why "the result lacks: $1"; }
json_number() { flat | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

# one_clear_line: a refusal is exit 125 and one line on stderr.
one_clear_line() {
	rc_is 125
	[ "$(wc -l <$T/err)" = 1 ] || why "stderr is $(wc -l <$T/err) lines, not one"
}

# start MARK OPTIONS…: a sandbox in the background that sleeps MARK seconds (a number nobody else uses); waits until it
# sleeps. Sets bg, and pid to the sleeping process as the host sees it.
start() {
	mark=$1
	shift
	cmd="$C run $* -- sleep $mark (in the background)"
	ran=yes
	rc=
	$C run "$@" -- sleep $mark >$T/out 2>$T/err </dev/null &
	bg=$!
	pid=
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		pid=$(sleeper $mark)
		[ -n "$pid" ] && return 0
		kill -0 $bg 2>/dev/null || break
		sleep 0.2
	done
	why "the sandbox did not start"
	stop
	return 1
}

sleeper() {
	for p in /proc/[0-9]*; do
		if [ "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" = "sleep $1 " ]; then
			echo ${p#/proc/}
			return
		fi
	done
}

stop() {
	kill -TERM $bg 2>/dev/null
	wait $bg
	rc=$?
}

# limit_of PID FILE: the first value on the way up from the process's group that is not "max".
limit_of() {
	g=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$1/cgroup)
	while [ "$g" != /sys/fs/cgroup ] && [ -n "$g" ]; do
		v=$(cat $g/$2 2>/dev/null)
		case $v in '' | max*) ;; *)
			echo "$v"
			return
			;;
		esac
		g=${g%/*}
	done
}

# --- nothing left behind --------------------------------------------------------------------------------------------

groups() { find /sys/fs/cgroup -mindepth 1 -type d -path '*cloche*/*' 2>/dev/null; }
mounts() { cut -d ' ' -f 4- /proc/self/mountinfo; }
processes() { # all but kernel threads, zombies, PID 1, this shell and what it just started
	ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n 's,.* /proc/\([0-9]*\)/exe -> .*,\1,p' >$T/pids
	for i in $(cat $T/pids); do
		[ $i = 1 ] || [ $i = $$ ] && continue
		[ -d /proc/$i ] && echo "$i $(tr '\0\n' '  ' </proc/$i/cmdline 2>/dev/null)"
	done
}
files() { # but for the cache of skeletons, which is meant to stay and grows with each number of cores asked for
	# The place of slots and the cache stay by design, whoever makes them first.
	mkdir -p /run/cloche /var/cache
	find /tmp /run /var /home /root /dev/shm \( -path $T -o -path /var/cache/cloche -o -path /run/cloche/slots -o -path /home/someone/.cache \) -prune -o -print 2>/dev/null | sort
}

# Prints what is there now and was not before, then takes it as given, so that one leak fails one case.
left_behind() {
	groups >$T/groups.now
	diff $T/groups $T/groups.now | sed -n 's/^+\([^+]\)/left behind: group \1/p'
	processes >$T/processes
	sed 's/^/left behind: process /' $T/processes
	for i in $(cut -d ' ' -f 1 $T/processes); do kill -KILL $i; done
	mounts >$T/mounts.now
	diff $T/mounts $T/mounts.now | sed -n 's/^+\([^+]\)/left behind: mount \1/p'
	files >$T/files.now
	diff $T/files $T/files.now | sed -n 's/^+\([^+]\)/left behind: file \1/p'
	for f in groups mounts files; do mv $T/$f.now $T/$f; done
}

groups >$T/groups
mounts >$T/mounts
files >$T/files

# --- the guest itself -----------------------------------------------------------------------------------------------

if begin "the kernel is the one that was asked for"; then
	[ "$(uname -r)" = "$(cat $here/release)" ] || why "running $(uname -r)"
	end
fi
if begin "control groups are version 2 only"; then
	[ "$(busybox stat -f -c %t /sys/fs/cgroup)" = 63677270 ] || why "/sys/fs/cgroup is not cgroup2"
	grep -q ' cgroup ' /proc/mounts && why "a version 1 hierarchy is mounted"
	for c in cpu memory pids io; do
		grep -qw $c /sys/fs/cgroup/cgroup.controllers || why "no controller $c"
	done
	end
fi
if begin "the guest has ext4, overlay and Landlock"; then
	grep -q ' / ext4 ' /proc/mounts || why "the root is not ext4"
	grep -qw overlay /proc/filesystems || why "no overlay"
	mkdir -p $T/sec && mount -t securityfs s $T/sec && grep -q landlock $T/sec/lsm || why "no Landlock"
	umount $T/sec
	end
fi
if begin "a dynamic program and Python start"; then
	run /usr/bin/true
	rc_is 0
	run python3 -c 'import json, os, subprocess; print("python")'
	out_is python
	end
fi
if [ -x $here/probe_p ] && begin "outside a sandbox the probes find this kernel open"; then
	run $here/probe_p P01 P02 P03 P04 P06 P07 P11 P12 P18
	for p in P01 P02 P03 P04 P06 P07 P11 P12 P18; do
		grep -q "^$p .* OPEN " $T/out || why "$p would look closed without a sandbox"
	done
	end
fi

# --- unit tests that look at the kernel -----------------------------------------------------------------------------

export CLOCHE_STORMS=10 # an emulated machine is slow
for t in $here/unit/*; do
	[ -x "$t" ] || continue
	if begin "unit tests: ${t##*/}"; then
		run $t
		rc_is 0
		grep -q '^ok' $T/out || why "no test ran"
		grep '^not ok\|# [Ss][Kk][Ii][Pp]' $T/out >>$T/why
		end
	fi
done

# --- running --------------------------------------------------------------------------------------------------------

finish() {
	[ $failed = 0 ] || dmesg | sed '1,/guest.sh begins/d; s/^/#   kernel: /' |
		grep -E 'Killed process|rejected|BUG|WARNING|Oops|segfault|traps:|general protection|cgroup:' | tail -n 40
	echo "1..$n"
	echo "V2-END $passed $failed"
	exit
}

name="the programs are built" ran=no began=$(uptime_s)
: >$T/why
for p in cloche cloche-agent cloche-probe; do
	[ -x $here/$p ] || why "no $p in the build folder"
done
end
[ -x $C ] && [ -x $here/cloche-agent ] || finish

# What the first run makes for all later ones (a folder below /run) may stay. Whether it works is the first case's matter.
$C run -- true >/dev/null 2>&1 </dev/null
files >$T/files

if begin "a command runs and its status passes"; then
	box -- true
	rc_is 0
	box -- sh -c 'exit 7'
	rc_is 7
	end
fi
if begin "output and input pass"; then
	box -- sh -c 'echo out; echo err >&2'
	out_is out
	[ "$(cat $T/err)" = err ] || why "stderr is not: err"
	echo through | $C run -- cat >$T/out
	out_is through
	end
fi
if begin "the user is 1000 without capabilities"; then
	box -- sh -c 'id -u; sed -n "s/^Cap\(Eff\|Prm\|Bnd\|Amb\):\t//p" /proc/self/status | sort -u'
	rc_is 0
	out_is "1000
0000000000000000"
	end
fi
if begin "root inside is not root outside"; then
	start 3600.11 --user root
	if [ -n "$pid" ]; then
		u=$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' /proc/$pid/status)
		[ "$u" -ge 65536 ] || why "uid $u on the host"
		stop
	fi
	box --user root -- id -u
	rc_is 0
	out_is 0
	end
fi
if begin "not found is 127, not executable is 126"; then
	box -- /no/such/program
	rc_is 127
	box -- no-such-program
	rc_is 127
	box -- /etc/passwd
	rc_is 126
	end
fi
if begin "Python runs"; then
	box -- python3 -c 'print(6 * 7)'
	rc_is 0
	out_is 42
	end
fi
if begin "the sandbox's group is its own root"; then
	box -- cat /proc/self/cgroup
	rc_is 0
	out_is "0::/"
	end
fi
if begin "four at once all work"; then
	ps4=
	for i in 1 2 3 4; do
		$C run -- sh -c "sleep 0.5; echo $i" >$T/par.$i 2>&1 &
		ps4="$ps4 $!"
	done
	for p in $ps4; do wait $p || why "one ended with $?"; done
	[ "$(cat $T/par.1 $T/par.2 $T/par.3 $T/par.4)" = "1
2
3
4" ] || why "outputs: $(cat $T/par.*)"
	rm -f $T/par.*
	end
fi

# --- limits and verdicts --------------------------------------------------------------------------------------------

if begin "limits are in the group's files while it runs"; then
	if start 3600.21 --cpus 0.5 --memory 64M --pids 20; then
		set -- $(limit_of $pid cpu.max)
		[ -n "$2" ] && [ $(($1 * 2)) = "$2" ] || why "cpu.max is '$*', not half a core"
		v=$(limit_of $pid memory.max)
		[ "$v" = 67108864 ] || why "memory.max is '$v'"
		v=$(limit_of $pid memory.swap.max)
		[ "$v" = 0 ] || why "memory.swap.max is '$v'"
		v=$(limit_of $pid pids.max)
		[ "${v:-0}" -ge 20 ] && [ "$v" -le 24 ] || why "pids.max is '$v'"
		stop
	fi
	end
fi
if begin "the defaults are limits too"; then
	if start 3600.22; then
		set -- $(limit_of $pid cpu.max)
		[ -n "$2" ] && [ "$1" = "$2" ] || why "cpu.max is '$*', not one core"
		v=$(limit_of $pid memory.max)
		[ "$v" = 536870912 ] || why "memory.max is '$v'"
		v=$(limit_of $pid pids.max)
		[ "${v:-0}" -ge 256 ] && [ "$v" -le 260 ] || why "pids.max is '$v'"
		stop
	fi
	end
fi
if begin "too much memory ends as oom"; then
	box --json --memory 64M -- dd if=/dev/zero of=/dev/null bs=200M count=1
	rc_is 137
	cause_is oom
	json_has '"limit":67108864'
	peak=$(flat | sed -n 's/.*"verdict":{[^}]*"peak":\([0-9]*\).*/\1/p')
	[ "${peak:-0}" -gt 60000000 ] && [ "$peak" -le 67108864 ] || why "the peak is '$peak'"
	end
fi

available() { sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo; }

# What contexts do while they run code (docs/design/0019-interpreter.md): the keeper has more memory, and stays.
if begin "the memory limit ends the process that has raised its score"; then
	box --memory 64M -- python3 -c 'import os, signal, time
def child(score, take):
    pid = os.fork()
    if not pid:
        open("/proc/self/oom_score_adj", "w").write(score)
        held = [bytearray(b"1") * (1 << 20) for _ in range(take)]
        os.write(end, b"x")
        time.sleep(100)
    return pid
start, end = os.pipe()
keeper = child("500", 36)
os.read(start, 1)
print(os.WTERMSIG(os.waitpid(child("1000", 100), 0)[1]), os.waitpid(keeper, os.WNOHANG)[0])
os.kill(keeper, signal.SIGKILL)'
	out_is "9 0"
	end
fi
# What sockets hold is in no group's memory.current. In MiB: as much less was available while they were filled.
if begin "sockets that are filled take no more than the memory limit"; then
	before=$(available)
	(while :; do available; sleep 0.1; done) >$T/available &
	bg=$!
	box --json --memory 64M --pids 32 --mount $here/limits:/fill:ro -- /fill/fill_sockets cork 8 300
	kill $bg
	wait $bg 2>/dev/null
	cause_is oom
	taken=$(((before - $(sort -n $T/available | head -n 1)) / 1024))
	echo "# $taken MiB less available at most"
	[ $taken -le 96 ] || why "$taken MiB were taken"
	end
fi
if begin "too many processes end as pids"; then
	box --json --pids 16 -- sh -c 'i=0; while [ $i -lt 60 ]; do sleep 20 >/dev/null 2>&1 & i=$((i + 1)); done; wait'
	cause_is pids
	json_has '"limit":16'
	[ "$rc" != 0 ] || why "exit status 0"
	end
fi
if begin "too long ends as timeout, with all descendants"; then
	box --json --timeout 1s -- sh -c 'setsid sh -c "setsid sleep 3600.31 & sleep 3600.32" & sleep 3600.33'
	rc_is 124
	cause_is timeout
	end
fi
if begin "too much processor time ends as cpu"; then
	box --json --cpu-time 1s -- sh -c 'while :; do :; done'
	rc_is 137
	cause_is cpu
	end
fi
if begin "processor time of several processes counts together"; then
	box --json --cpus 2 --cpu-time 1s --timeout 20s -- sh -c 'for i in 1 2 3; do (while :; do :; done) & done; wait'
	rc_is 137
	cause_is cpu
	end
fi
if begin "a quarter of a core is not more"; then
	box --json --cpus 0.25 --timeout 3s -- sh -c 'while :; do :; done'
	rc_is 124
	cpu=$(json_number cpu_ms)
	[ "${cpu:-0}" -ge 200 ] && [ "$cpu" -le 1800 ] || why "cpu_ms is '$cpu' in 3 s"
	end
fi
if begin "too much on disk ends as disk"; then
	box --json --disk 8M -- sh -c 'dd if=/dev/zero of=$HOME/big bs=1M count=64'
	cause_is disk
	[ "$rc" != 0 ] || why "exit status 0"
	end
fi
if begin "programs inside see the limits, not the machine"; then
	box --cpus 1 --memory 64M -- sh -c 'nproc; sed -n "s/^MemTotal: *//p" /proc/meminfo; free -k | sed -n "s/^Mem: *\([0-9]*\).*/\1/p"'
	rc_is 0
	out_is "1
65536 kB
65536"
	end
fi
if begin "a limit of I/O bandwidth is in io.max"; then
	opt=$($C run --help 2>&1 | grep -o -- '--io[a-z-]*' | head -n 1)
	if [ -z "$opt" ]; then
		why "cloche run --help has no --io… option"
	elif start 3600.41 --storage disk --disk 64M $opt 4M; then
		v=$(limit_of $pid io.max)
		case $v in *rbps=4194304*wbps=4194304*) ;; *) why "io.max is '$v'" ;; esac
		stop
	fi
	end
fi
if begin "the receipt says version 2"; then
	box --json -- true
	rc_is 0
	flat | grep -q '"enforced":' || why "no receipt"
	grep -qi 'cgroup[^,]*2\|v2' $T/out || why "the receipt does not name version 2"
	end
fi
if begin "killing cloche ends its sandbox, and the next run sweeps up"; then
	if start 3600.51; then
		kill -KILL $bg
		wait $bg
		sleep 1
		[ -z "$(sleeper 3600.51)" ] || why "the sandboxed process lives on"
		run $C run -- true
		rc_is 0
	fi
	end
fi

# --- files ----------------------------------------------------------------------------------------------------------

if begin "a read-only root leaves the work folder and /tmp writable"; then
	box --read-only -- sh -c 'echo x >/tmp/a && echo x >./b && echo writable; echo x 2>/dev/null >/etc/c && echo etc; echo x 2>/dev/null >/usr/c && echo usr; true'
	rc_is 0
	out_is writable
	box --user root --read-only -- sh -c 'echo x 2>/dev/null >/etc/c && echo etc; echo x 2>/dev/null >/usr/c && echo usr; true'
	rc_is 0
	out_is ""
	end
fi
if begin "a tmpfs has its size"; then
	box --tmpfs /scratch:size=4M -- sh -c 'dd if=/dev/zero of=/scratch/x bs=1M count=16 2>/dev/null; stat -c %s /scratch/x'
	rc_is 0
	out_is 4194304
	end
fi
if begin "a mounted folder is there, read-only when asked"; then
	mkdir -p /var/share
	echo hello >/var/share/f
	chmod 777 /var/share
	box --mount /var/share:/data:ro -- sh -c 'cat /data/f; echo x 2>/dev/null >/data/g && echo written; true'
	rc_is 0
	out_is hello
	box --mount /var/share:/data -- sh -c 'echo mine >/data/g && cat /data/g'
	rc_is 0
	out_is mine
	rm -rf /var/share
	end
fi
if begin "the host's files do not change"; then
	box --user root -- sh -c 'echo x >/usr/bin/planted; echo x >/etc/planted; rm -f /usr/bin/env; echo x >/root/planted; true'
	rc_is 0
	[ ! -e /usr/bin/planted ] && [ ! -e /etc/planted ] && [ -e /usr/bin/env ] && [ ! -e /root/planted ] || why "the host changed"
	end
fi
if begin "a folder is an image"; then
	mkdir -p /var/img/bin /var/img/etc
	cp /usr/bin/busybox /var/img/bin/busybox
	ln -s busybox /var/img/bin/sh
	box --image /var/img -- /bin/sh -c 'echo inside; [ -e /usr/bin/python3 ] && echo leaked; true'
	rc_is 0
	out_is inside
	rm -rf /var/img
	end
fi

# --- refusals -------------------------------------------------------------------------------------------------------

if begin "bad input is one clear line"; then
	for o in "--no-such-option" "--memory 12Q" "--image /no/such" "--user nobody-there" "--cpus x"; do
		box $o -- true
		[ "$rc" = 125 ] && [ "$(wc -l <$T/err)" = 1 ] || why "$o: status $rc, $(wc -l <$T/err) lines"
	done
	end
fi
if begin "doctor finds nothing missing and says version 2"; then
	run $C doctor
	rc_is 0
	grep -qi 'control groups.*version 2' $T/out || why "it does not name version 2"
	end
fi

# --- probes ---------------------------------------------------------------------------------------------------------

probes_closed() { # from probe_p's output
	s=$(sed -n 's/^SUMMARY //p' $T/out)
	case $s in
	*"open=0 na=0"*) ;;
	*) why "probes: ${s:-no summary}; $(grep -E ' (OPEN|NA) ' $T/out | tr '\n' ';')" ;;
	esac
}

for u in user root; do
	if [ -x $here/probe_p ] && begin "the public probes are closed as $u"; then
		box --user $u --mount $here:/probes:ro -- /probes/probe_p --canary /root/.canary only-on-the-host
		rc_is 0
		probes_closed
		end
	fi
	if begin "our own probes are closed as $u"; then
		# What must not be reached from inside: a port of the loopback, an abstract socket.
		python3 -c 'import socket, time
a = socket.create_server(("127.0.0.1", 7999)); b = socket.socket(socket.AF_UNIX); b.bind("\0v2-host"); b.listen()
time.sleep(100)' &
		listener=$!
		until grep -q '@v2-host' /proc/net/unix || ! kill -0 $listener; do sleep 0.2; done
		box --user $u --mount $here:/probes:ro -- /probes/cloche-probe --tsv --canary /root/.canary only-on-the-host \
			--ro /probes --port 7999 --abstract v2-host
		kill $listener
		wait $listener 2>/dev/null
		rc_is 0
		[ "$(cut -f 2 $T/out | grep -c closed)" -ge 20 ] || why "fewer than 20 probes are closed"
		awk -F '\t' '$2 != "closed" && $2 != "info"' $T/out >>$T/why
		end
	fi
done
if [ -x $here/probe_p ] && begin "bombs stop at their limits"; then
	box --memory 128M --disk 32M --pids 32 --env SBX_MB=256 --env SBX_PIDS=64 --mount $here:/probes:ro -- \
		/probes/probe_p B1 B3 B4 B5
	rc_is 0
	probes_closed
	end
fi
if begin "doctor --attack finds nothing open"; then
	patience=300
	run $C doctor --attack --no-bombs # minutes when emulated; those above have shown that limits hold
	patience=60
	rc_is 0
	grep -w 'open\|OPEN' $T/out | grep -v ' 0 open,' >>$T/why
	end
fi

# --- other ways to be started ---------------------------------------------------------------------------------------

if begin "it works when started from a group of its own"; then
	mkdir /sys/fs/cgroup/service
	run sh -c "echo \$\$ >/sys/fs/cgroup/service/cgroup.procs; exec $C run --memory 64M -- true"
	rc_is 0
	rmdir /sys/fs/cgroup/service/cloche 2>/dev/null
	rmdir /sys/fs/cgroup/service || why "the group is still busy"
	end
fi
someone="env HOME=/home/someone setpriv --reuid 1234 --regid 1234 --clear-groups"
works_or_says_why() {
	case $rc in
	0) [ "$(cat $T/out)" = "$1" ] || why "status 0 but not its output" ;;
	125)
		one_clear_line
		grep -qi 'invalid argument' $T/err && why "the line names an errno, not what is missing"
		;;
	*) why "status $rc: neither 0 nor 125" ;;
	esac
	echo "# rootless ($name): status $rc $(cat $T/err)"
}
if begin "without root and without groups it works or says why"; then
	run $someone $C run -- sh -c 'echo rootless'
	works_or_says_why rootless
	end
fi
if begin "without root but with delegated groups it works"; then
	d=/sys/fs/cgroup/someone
	mkdir $d
	echo "+cpu +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
	echo "+cpu +memory +pids" >$d/cgroup.subtree_control
	mkdir $d/session
	chown -R 1234:1234 $d/session
	run sh -c "echo \$\$ >$d/session/cgroup.procs; exec $someone $C run --memory 64M -- sh -c 'echo rootless'"
	rc_is 0
	out_is rootless
	find $d -depth -type d -exec rmdir {} \; 2>/dev/null
	[ ! -d $d ] || why "the delegated group is still busy"
	end
fi

refused() { # KIND ERROR: the filler gets nothing
	box --mount $here/limits:/limits:ro -- /limits/fill_objects $1 1 0.2
	rc_is 0
	out_is "0 objects, $2"
}
if begin "kernel memory that no group counts is refused"; then
	refused mbind "Operation not permitted"
	refused homenode "Operation not permitted"
	refused md5 "Protocol not available"
	refused filter "Protocol not available"
	end
fi
# The whole machine is ours: what it loses is what the sandbox takes. With CLOCHE_LONG=1: emulated, it takes minutes.
if [ -e $here/long ] && begin "kernel memory that no group counts stays within the limit and 32 MiB"; then
	patience=300
	for kind in memory aclshm locks listingetc; do
		run env CLOCHE_BUILD=$here $here/limits/measure.py --fillers $here/limits --processes 8 --seconds 12 --user root $kind
		rc_is 0
		sed 's/^/# /' $T/out
	done
	patience=60
	end
fi

finish
