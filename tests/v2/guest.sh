#!/usr/bin/busybox sh
n=0 passed=0 failed=0
for c in cpu memory pids io; do
	n=$((n+1))
	if grep -qw $c /sys/fs/cgroup/cgroup.controllers; then passed=$((passed+1)); echo "ok $n - controller $c"
	else failed=$((failed+1)); echo "not ok $n - controller $c"; fi
done
echo 1..$n
echo "V2-END $passed $failed"
