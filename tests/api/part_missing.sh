#!/bin/sh
# A part that is ON and cannot be found stops the configuration and is named; a value that is no word of ours too.
# part_missing.sh SOURCE_DIR CC
set -u
failed=0
refused() {
    part=$1 setting=$2
    rm -rf part_missing
    # A pkg-config that knows nothing, and no MPI or CUDA to be found.
    if env PKG_CONFIG_LIBDIR=/nonexistent cmake -G Ninja -S "$source" -B part_missing -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DLINNET_BUILD_TESTS=OFF \
        -DLINNET_WITH_"$part"="$setting" >part_missing.log 2>&1; then
        echo "LINNET_WITH_$part=$setting was accepted"
        failed=1
    elif ! grep -q "LINNET_WITH_$part" part_missing.log; then
        echo "LINNET_WITH_$part=$setting: the message does not name it"
        failed=1
    fi
}
source=$1 cc=$2
for part in UCX MPI CUDA HWLOC SODIUM; do
    refused "$part" ON
done
refused UCX maybe
exit "$failed"
