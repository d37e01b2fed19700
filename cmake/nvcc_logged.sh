#!/bin/sh
# nvcc_logged.sh LOG NVCC ARGS...: runs the compiler; its words go to LOG, and to the terminal as well if it fails.
log=$1
shift
"$@" >"$log" 2>&1 && exit 0
status=$?
cat "$log"
exit "$status"
