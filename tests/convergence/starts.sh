#!/usr/bin/env bash
# starts.sh LINNET_BERT CACHE DIR [WHY_NO_MPI]: forked ranks, ranks from the environment (torchrun's variables) and, unless
# WHY_NO_MPI says why not, ranks of mpirun train to the same bits.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3
without_mpi=${4:-}
options=(--cache "$CACHE" --nodes 2 --optim onebit_adam --steps 6 --freeze-step 3 --eval-every 0 --eval-windows 64 --quiet)
readonly options
needs_text
rm -rf "$DIR"
mkdir -p "$DIR" || exit 1

# same NAME: the run's parameters are those of the forked ranks.
same() {
    local have
    have=$(value "$DIR/$1.jsonl" params_hash)
    say "$1: $have"
    [ "$have" = "$(value "$DIR/forked.jsonl" params_hash)" ] || fail "another result when started by $1"
}

"$BERT" "${options[@]}" --ranks 2 --json "$DIR/forked.jsonl" || fail "forked ranks"
same forked

port=$(python3 "$HERE/../free_port.py") || fail "no free port"
pids=()
for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$BERT" "${options[@]}" --json "$DIR/environment.jsonl" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "ranks from the environment"; done
same environment

command -v mpirun >/dev/null 2>&1 || without_mpi=${without_mpi:-mpirun is missing (openmpi-bin)}
if [ -z "$without_mpi" ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 --oversubscribe \
        "$BERT" "${options[@]}" --json "$DIR/mpirun.jsonl" || fail "ranks of mpirun"
    same mpirun
else
    say "skipped: ranks of mpirun: $without_mpi"
fi
exit 0
