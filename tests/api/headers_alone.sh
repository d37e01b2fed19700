#!/bin/sh
# Every public header compiles alone, twice in a row, as strict C11 and as C++17, with warnings as errors.
# headers_alone.sh CC CXX PUBLIC_HEADERS GENERATED_HEADERS; CXX may be empty, mpi.h is MPI's business.
set -u
cc=$1 cxx=$2 failed=0 checked=0
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wshadow -Werror -fsyntax-only"
for header in "$3"/linnet/*.h; do
    name=linnet/$(basename "$header")
    [ "$name" = linnet/mpi.h ] && continue
    printf '#include <%s>\n#include <%s>\nint lnt_only_this_header;\n' "$name" "$name" >header_alone.c
    checked=$((checked + 1))
    "$cc" -std=c11 $warnings -Wstrict-prototypes -I"$3" -I"$4" header_alone.c || { echo "$name is no strict C11"; failed=1; }
    [ -z "$cxx" ] && continue
    "$cxx" -x c++ -std=c++17 $warnings -I"$3" -I"$4" header_alone.c || { echo "$name is no C++17"; failed=1; }
done
[ -z "$cxx" ] && echo "skipped: headers as C++: no C++ compiler"
echo "$checked headers"
[ "$checked" -gt 0 ] || failed=1
exit "$failed"
