#!/bin/sh
# Installs linnet, moves the installed tree, and builds and runs docs/examples against it: with pkg-config, with CMake,
# and statically. install_test.sh BUILD_DIR SOURCE_DIR CC
set -eu
command -v python3 >/dev/null 2>&1 || { echo "skipped: python3 is missing, it finds a free port"; exit 77; }
build=$1 source=$2 cc=$3
work=$PWD/install_test
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved" # nothing installed may remember where it was
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name linnet.pc)")
export PKG_CONFIG_PATH="$libdir"

# Two ranks that play two nodes; both must end where the mean of their gradients leads.
run_example() {
    port=$(python3 "$source/tests/free_port.py") || exit 1
    for rank in 0 1; do
        env MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=2 RANK=$rank LINNET_NODE=node$rank \
            LD_LIBRARY_PATH="$libdir/.." timeout 60 "$1" >"$work/rank$rank.txt" &
        eval "pid$rank=$!"
    done
    wait "$pid0"
    wait "$pid1"
    cat "$work/rank0.txt" "$work/rank1.txt"
    for rank in 0 1; do
        awk -v rank="$rank" '{ off_w = $4 - 2; off_b = $6 + 1
            exit !($2 == rank ":" && off_w * off_w < 0.01 && off_b * off_b < 0.01) }' "$work/rank$rank.txt"
    done
}

echo "pkg-config, shared:"
$cc -std=c11 -Wall -Wextra "$source/docs/examples/train.c" -o "$work/train_pc" $(pkg-config --cflags --libs linnet)
run_example "$work/train_pc"

echo "pkg-config, static:"
$cc -std=c11 "$source/docs/examples/train.c" -o "$work/train_pc_static" $(pkg-config --cflags linnet) "$libdir/../liblinnet.a" \
    $(pkg-config --static --libs-only-l linnet | sed 's/-llinnet//')
run_example "$work/train_pc_static"

echo "CMake, shared and static:"
cmake -S "$source/docs/examples" -B "$work/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
run_example "$work/cmake/train"
run_example "$work/cmake/train_static"
if find_output=$(grep -rlF "$work/first" "$prefix"); then
    echo "remembers where it was installed: $find_output"
    exit 1
fi
