#!/bin/sh
# With every optional part OFF, and as a release (no assertions), linnet builds and its tests over shared memory pass.
# minimal_build.sh SOURCE_DIR CC
set -eu
source=$1 cc=$2
work=$PWD/minimal_build
cmake -G Ninja -S "$source" -B "$work" -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Release -DLINNET_WITH_UCX=OFF \
    -DLINNET_WITH_MPI=OFF -DLINNET_WITH_CUDA=OFF -DLINNET_WITH_HWLOC=OFF -DLINNET_WITH_SODIUM=OFF \
    -DLINNET_BUILD_BERT=OFF >minimal_build.log 2>&1 ||
    { tail -n 40 minimal_build.log; exit 1; }
if grep "linnet part .*: yes" minimal_build.log; then
    echo "a part that is OFF was used"
    exit 1
fi
cmake --build "$work" >>minimal_build.log 2>&1 || { tail -n 40 minimal_build.log; exit 1; }
# test_stop and test_alloc_faults mostly wait, kernels on emulated machines, long oracles and replays take minutes, and none
# of them meets an optional part: the ordinary build runs them.
LNT_KILL_ROUNDS=20 ctest --test-dir "$work" -L 'unit|kernel|multi|optim|fault|golden' \
    -E 'test_stop|test_alloc_faults|emu|cuda|zero_one_oracle|lamb|came|error_dtype|plan_memory|option_effects|replay_' \
    --output-on-failure >minimal_tests.log 2>&1 ||
    { tail -n 60 minimal_tests.log; exit 1; }
grep 'tests passed' minimal_tests.log
