#!/bin/bash
# What a sandbox is for: code that works, and three things that must not. Exits 1 when one of them got through.
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

if [ "$failed" != 0 ]; then
	printf '\nthe demo failed\n'
	exit 1
fi
printf '\nall four ended as they should\n'
