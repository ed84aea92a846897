#!/bin/sh
# A shared library needs no others than those named, and calls nothing that it does not have: check_needed.sh LIBRARY NAME…
set -eu
library=$1
shift
[ -f "$library" ] || { echo "there is no $library" >&2; exit 1; }
for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
	known=no
	case $needed in ld-linux*) known=yes ;; esac # of libc itself
	for name; do
		case $needed in "$name".so*) known=yes ;; esac
	done
	[ $known = yes ] || { echo "$library needs $needed" >&2; exit 1; }
done
missing=$(ldd -r "$library" 2>&1 | grep -E 'undefined|not found' || true)
[ -z "$missing" ] || { echo "$missing" >&2; exit 1; }
