#!/usr/bin/env bash
# resume.sh LINNET_BERT CACHE DIR "STOPS" [options]: a run that is stopped after any of the steps STOPS and continued ends
# with the bits of one that is not. The freeze comes after step 5; the continuation uses other bucket sizes.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3 STOPS=$4
shift 4
readonly STEPS=14 FREEZE=5
options=("$@")
needs_text
rm -rf "$DIR"
mkdir -p "$DIR" || exit 1

# train FILE [options]
train() {
    local file=$1
    shift
    "$BERT" --cache "$CACHE" --json "$file" --quiet --ranks 4 --nodes 2 --steps $STEPS --freeze-step $FREEZE --eval-every 0 \
        --eval-windows 64 "${options[@]}" "$@" || fail "linnet-bert ${options[*]} $*"
    [ "$(value "$file" params_identical)" = true ] || fail "the ranks differ: ${options[*]} $*"
}

train "$DIR/whole.jsonl"
want=$(value "$DIR/whole.jsonl" params_hash)
for stop in $STOPS; do
    train "$DIR/first-$stop.jsonl" --stop-after "$stop" --save "$DIR/state-$stop"
    [ "$(value "$DIR/first-$stop.jsonl" params_hash)" != "$want" ] || fail "the hash does not see training"
    train "$DIR/second-$stop.jsonl" --resume "$DIR/state-$stop" --bucket-kib 64
    have=$(value "$DIR/second-$stop.jsonl" params_hash)
    say "stopped after $stop of $STEPS, $(value "$DIR/first-$stop.jsonl" last_phase): $have, without a stop: $want"
    [ "$have" = "$want" ] || fail "resuming after step $stop changes the result"
done
exit 0
