#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header stands alone as strict C11 and as C++, and sluice.h has them all: check_headers.sh c|c++ INCLUDE_DIR
# CC and CXX name the compilers. Exits 77 (skipped) when there is no C++ compiler.
set -eu

language=$1
include=$2
case $language in
c) compiler=${CC:-cc} standard=-std=c11 ;;
c++) compiler=${CXX:-c++} standard=-std=c++11 ;;
*) echo "usage: check_headers.sh c|c++ INCLUDE_DIR" >&2 && exit 64 ;;
esac
# CC may hold more than a name, as in "ccache gcc".
command -v "${compiler%% *}" >/dev/null 2>&1 || exit 77

all=$(echo '#include <sluice/sluice.h>' | $compiler -x "$language" $standard -M -I"$include" -)
failed=0
count=0
for header in $(cd "$include" && find sluice -name '*.h' | sort); do
	count=$((count + 1))
	# Twice, to test the include guard.
	printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
		$compiler -x "$language" $standard -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$include" - ||
		{ echo "$header does not compile as $standard" >&2 && failed=1; }
	echo "$all" | grep -q "/$header\b" ||
		{ echo "$header is not in sluice.h" >&2 && failed=1; }
done
echo "$count headers as $standard"
[ "$count" -gt 0 ] || failed=1
exit $failed
