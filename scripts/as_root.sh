#!/bin/sh
# as_root.sh COMMAND...: runs it as root, with sudo where we are not, and with our settings. What it makes in the tree and in the
# build folder is the caller's afterwards, so that the next plain `make` can go on with it. Without sudo the command runs as it can.
set -eu
if [ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null; then
	exec "$@"
fi

me=$(id -u):$(id -g)
tree=$(dirname "$0")/..
build=${BUILD:-build}
for name in BUILD PREFIX PARTS WERROR TERM $(env | sed -n 's/^\(CLOCHE_[A-Z0-9_]*\)=.*/\1/p'); do
	eval "[ -z \"\${$name+x}\" ] || set -- \"$name=\$$name\" \"\$@\""
done
status=0
trap : INT TERM # they reach the command as well; what it made is given back nevertheless
sudo env "PATH=$PATH" "$@" || status=$?
[ -d "$build" ] || build=$tree
sudo find "$tree" "$build" -xdev -user root -exec chown -h "$me" {} + || : # said why
exit "$status"
