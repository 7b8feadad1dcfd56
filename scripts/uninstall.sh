#!/bin/sh
# uninstall.sh [DESTDIR]: removes what install.sh has installed, and nothing else; as root where that is needed. Folders that
# others may use as well (bin, libexec, the prefix) stay.
set -eu
cd "$(dirname "$0")/.."
dest=${1:+$(realpath -m -- "$1")}
to=$dest${PREFIX:?}

if [ -d "$to/bin" ] && [ ! -w "$to/bin" ] && [ "$(id -u)" != 0 ] && command -v sudo >/dev/null; then
	exec scripts/as_root.sh "$0" "$dest"
fi
rm -f -- "$to/bin/cloche"
rm -rf -- "${to:?}/libexec/cloche"
echo "removed from $to; data stays (/var/lib/cloche and what the configuration names)"
