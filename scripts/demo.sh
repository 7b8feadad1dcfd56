#!/bin/bash
# What a sandbox is for: code that works, and three things that must not. Then, as root, a daemon that is killed while
# it works. Exits 1 when something is not as it should be.
set -u
cd "$(dirname "$0")/.." || exit 1
cloche=${BUILD:-build}/cloche
failed=0

# show TITLE CAUSES EXIT OPTIONS... -- COMMAND...: runs it and compares the verdict's cause (one of several, joined by |)
# and the exit code ("0" or "not 0") with what is expected.
show() {
	local title=$1 causes=$2 exit=$3 word
	shift 3
	printf '\n== %s\n$ cloche run' "$title"
	for word in "$@"; do
		case $word in
		*[!a-zA-Z0-9/._-]*) printf " '%s'" "$word" ;; # no word here holds a single quote
		*) printf ' %s' "$word" ;;
		esac
	done
	printf '\n'
	"$cloche" run --json "$@" </dev/null | CAUSES=$causes EXIT=$exit /usr/bin/python3 -c '
import json, os, sys

text = sys.stdin.read()
try:
    result = json.loads(text)
    verdict = result["verdict"]
except (ValueError, KeyError):
    sys.exit("no result: " + text)
for stream in ("stdout", "stderr"):
    for line in result[stream].splitlines()[-5:]:
        print("  " + line)
print("  verdict: " + " ".join(f"{k}={v}" for k, v in verdict.items() if v is not None))
code = result["exit_code"]
ended_well = verdict["cause"] == "exited" and code == 0
causes, expected = os.environ["CAUSES"], os.environ["EXIT"]
good = verdict["cause"] in causes.split("|") and ended_well == (expected == "0")
print("  as it should be" if good else f"  WRONG: expected {causes}, exit code {expected}")
sys.exit(0 if good else 1)
' || failed=1
}

show 'Python code in a sandbox' exited 0 \
	-- /usr/bin/python3 -c 'import os, sys
print("Python", sys.version.split()[0], "as uid", os.getuid(), "pid", os.getpid())
print(sum(i * i for i in range(1000)))'

show 'the network: there is none' exited 'not 0' \
	-- /usr/bin/python3 -c 'import socket
socket.create_connection(("1.1.1.1", 53), timeout=3)
print("CONNECTED")'

show 'a memory bomb: stopped at its limit' oom 'not 0' --memory 64M --timeout 30s \
	-- /usr/bin/python3 -c 'x = b"x" * (1 << 20)
while True: x += x'

show 'a fork bomb: stopped at its limit' pids 'not 0' --pids 32 --timeout 30s \
	-- /usr/bin/python3 -c 'import os
while True: os.fork()'

# ---- the daemon ------------------------------------------------------------------------------------------------------
tmp= daemon=

serve() {
	"$cloche" serve --data "$tmp/data" --listen 127.0.0.1:0 --stop-sandboxes >>"$tmp/log" 2>&1 </dev/null &
	daemon=$!
}

# Whatever happened: no daemon, no sandbox and no file stays. One that died cannot have ended its sandboxes; the next
# one on its folder finds and ends them.
clean_up() {
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null
		wait "$daemon" || { serve && sleep 3 && kill -TERM "$daemon" && wait "$daemon"; }
	fi 2>/dev/null
	[ -z "$tmp" ] || rm -rf "$tmp"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

wrong() {
	printf '  WRONG: %s\n' "$*"
	failed=1
}

# client WANTED COMMAND...: runs a command of the client and compares what it prints.
client() {
	local wanted=$1 got word
	shift
	printf '$ cloche'
	for word in "$@"; do
		case $word in
		*[!a-zA-Z0-9/:._-]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	got=$("$cloche" "$@" 2>&1)
	printf '\n'
	[ -z "$got" ] || printf '%s\n' "$got" | sed 's/^/  /'
	[ "$got" = "$wanted" ] || wrong "expected '$wanted'"
}

# The daemon's children by name; its API process is another cloche-serve.
child() {
	local status
	for status in /proc/[0-9]*/status; do
		awk -v name="$1" -v parent="$daemon" '$1 == "Name:" { n = $2 } $1 == "Pid:" { p = $2 }
			$1 == "PPid:" && $2 == parent && n == name { print p }' "$status" 2>/dev/null
	done
}

wait_for() { # a line in the daemon's log
	local i
	for i in $(seq 300); do
		! grep -q "$1" "$tmp/log" || return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	wrong "the daemon does not say '$1'"
	cat "$tmp/log"
	return 1
}

show_daemon() {
	local id api

	printf '\n== a daemon, for sandboxes that stay\n'
	tmp=$(mktemp -d) && chmod 755 "$tmp" || return 1 # its API process is another user
	printf '$ cloche serve\n'
	serve
	wait_for '^try: ' || return 1
	sed 's/^/  /' "$tmp/log"
	CLOCHE_URL=$(sed -n 's/.*serving on \(http[^ ]*\) .*/\1/p' "$tmp/log")
	CLOCHE_TOKEN=$(sed -n 's/^token: //p' "$tmp/log")
	export CLOCHE_URL CLOCHE_TOKEN
	printf '$ cloche create --name demo\n'
	id=$("$cloche" create --name demo) || return 1
	printf '  %s\n' "$id"
	client 42 exec demo -- python3 -c 'print(6 * 7)'
	echo 'a note' >"$tmp/note"
	client '' cp "$tmp/note" demo:note.txt
	client 'A NOTE' exec --shell demo 'tr a-z A-Z <note.txt'
	client 'a note' cp demo:note.txt -

	printf '\n== kill -9 of its API process, while a command runs in the background\n'
	printf '$ cloche exec -d demo ...\n'
	id=$("$cloche" exec -d demo -- sh -c 'for i in 1 2 3 4 5 6; do echo "line $i"; sleep 0.5; done; exit 7') || return 1
	printf '  %s\n' "$id"
	sleep 1
	api=$(child cloche-serve)
	printf '$ kill -9 %s\n' "$api"
	kill -9 "$api" || return 1
	client $'line 1\nline 2\nline 3\nline 4\nline 5\nline 6' logs --follow demo "$id"
	wait_for 'starting it again' || return 1
	printf '  the API process is now %s\n' "$(child cloche-serve)"
	[ "$(child cloche-serve)" != "$api" ] || wrong 'it was not killed'
	"$cloche" logs --list --json demo | ID=$id /usr/bin/python3 -c '
import json, os, sys

x = next(x for x in json.load(sys.stdin) if x["id"] == os.environ["ID"])
print("  " + x["state"] + ", exit code " + str(x["exit_code"]))
sys.exit(x["exit_code"] != 7)
' || wrong 'expected exit code 7'

	printf '\n== the end\n'
	client demo rm demo
	client '[]' ls --json
	printf '$ kill %s\n' "$daemon"
	if kill -TERM "$daemon" && wait "$daemon"; then
		daemon=
	else
		wrong "exit code $?"
	fi
	"$cloche" audit verify "$tmp/data/audit.log" | sed 's/^/  /'
	[ "${PIPESTATUS[0]}" = 0 ] || wrong 'the audit log'
}

if [ "$(id -u)" = 0 ]; then
	show_daemon || failed=1
	said='all of it went as it should'
else
	said='all four ended as they should; `cloche serve` needs root: sudo make demo shows it'
fi
if [ "$failed" != 0 ]; then
	printf '\nthe demo failed\n'
	exit 1
fi
printf '\n%s\n' "$said"
