# A copy of this machine that forgets everything, in a separate mount namespace: for scripts of this folder to source.
# Afterwards $tmp is a folder in memory, and $root in it the copy, without the packages of Sluice. It ends the script with
# 77, saying why, where that cannot be made. shellcheck shell=bash
cannot() {
	echo "1..0 # SKIP $1"
	[ -z "${SLUICE_COUNTS:-}" ] || echo "0 0 1" >>"$SLUICE_COUNTS"
	exit 77
}
[ "$(id -u)" = 0 ] || cannot "not root"
if [ -z "${SLUICE_OVERLAY:-}" ]; then
	unshare --mount true 2>/dev/null || cannot "no mount namespace can be made"
	# What is mounted here ends with this namespace.
	SLUICE_OVERLAY=1 exec unshare --mount "$0" "$@"
fi

tmp=$(mktemp -d)
mount -t tmpfs tmpfs "$tmp" || cannot "nothing can be mounted"
trap 'umount -l "$tmp" && rmdir "$tmp"' EXIT
root=$tmp/root
mkdir "$tmp/upper" "$tmp/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$tmp/upper,workdir=$tmp/work" "$root" 2>/dev/null ||
	cannot "the machine's root cannot be overlaid"
# No index of all manual pages is to be made.
rm -rf "$root/var/lib/man-db/auto-update"
dpkg --root="$root" --force-all --purge sluice libsluice-dev libsluice0 >/dev/null 2>&1

# The counts of a TAP output, which it prints.
report() {
	local passed failed
	cat "$1"
	passed=$(grep -c '^ok ' "$1") failed=$(grep -c '^not ok ' "$1")
	grep -q '^1\.\.' "$1" || { echo "not ok - the cases came to their end" && failed=$((failed + 1)); }
	[ -z "${SLUICE_COUNTS:-}" ] || echo "$passed $failed 0" >>"$SLUICE_COUNTS"
	[ "$failed" = 0 ]
}
