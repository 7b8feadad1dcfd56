#!/bin/sh
# Refuses C that clang-format would write in another way (`make format` mends it). Without arguments: all C that git knows.
# What counts is release 14, which Debian 12 has; others write some lines in another way.
set -eu
cd "$(dirname "$0")/.."
[ $# != 0 ] || set -- $(git ls-files 'src/*.[ch]' 'tools/*.c' 'tests/*.[ch]')
if ! command -v clang-format-14 >/dev/null; then
	echo 'format.sh: no clang-format-14 (package clang-format of Debian 12): the format is not checked'
	exit 0
fi
exec clang-format-14 --dry-run --Werror -ferror-limit=20 "$@"
