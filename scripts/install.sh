#!/bin/sh
# install.sh [DESTDIR]: installs what is built, below DESTDIR when given, else in place; as root where that is needed.
set -eu
cd "$(dirname "$0")/.."
dest=${1:+$(realpath -m -- "$1")}
to=$dest$PREFIX

over=$to
while [ ! -e "$over" ]; do
	over=$(dirname -- "$over")
done
if [ ! -w "$over" ] && [ "$(id -u)" != 0 ] && command -v sudo >/dev/null; then
	exec scripts/as_root.sh "$0" "$dest"
fi
# Meson installs below the prefix that $BUILD was configured with, which may be another.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage /usr/bin/meson install -C "$BUILD" --no-rebuild --strip --quiet
bin=$(find "$stage" -type f -path '*/bin/cloche')
from=${bin%/bin/cloche}
: "${from:?meson has installed no bin/cloche}"
# Folders that exist stay as they are, with their modes, and may be links to others. Those that are made are for all users.
umask 022
(cd "$from" && find . ! -type d) | while IFS= read -r file; do
	mkdir -p -- "$(dirname -- "$to/$file")"
	cp -P --remove-destination --preserve=mode,timestamps -- "$from/$file" "$to/$file"
done
if [ -e "$BUILD/vm/release" ]; then
	install -D -m 0644 -t "$to/libexec/cloche/vm" "$BUILD/vm/kernel" "$BUILD/vm/modules.cpio"
fi
echo "installed below $to"
