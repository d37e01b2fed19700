#!/bin/sh
# Every C, C++ and CUDA file is laid out as .clang-format says. check_format.sh ROOT; exit 77 where there is no clang-format or no git.
set -u
cd "$1" || exit 1
command -v clang-format >/dev/null 2>&1 || { echo "skipped: clang-format is missing"; exit 77; }
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo "skipped: no git checkout, so no list of files"; exit 77; }
git ls-files -z '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
