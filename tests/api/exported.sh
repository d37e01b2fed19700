#!/bin/sh
# The shared library exports exactly tests/api/exported.txt, all of it under one version, and asks for system libraries
# only. exported.sh LIBRARY LIST
set -u
failed=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort >"$work/now.txt"
sed 's/$/@@LINNET_0/' "$2" | sort >"$work/wanted.txt"
if ! diff -u "$work/wanted.txt" "$work/now.txt"; then
    echo "exported symbols differ from tests/api/exported.txt (- missing, + not in the list)"
    failed=1
fi
for needed in $(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'); do
    case $needed in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | ld-linux*) ;;
    *)
        echo "$1 needs $needed"
        failed=1
        ;;
    esac
done
exit "$failed"
