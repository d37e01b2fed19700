#!/usr/bin/env bash
# resume.sh LINNET_BERT CACHE DIR: a run that is stopped and continued ends with the bits of one that is not, whether it
# stops in the warm-up, at the freeze, or in the compressed phase; the continuation may use other bucket sizes.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3
readonly STEPS=24 FREEZE=10
needs_text
rm -rf "$DIR"
mkdir -p "$DIR" || exit 1

# bert FILE [options]
bert() {
    local file=$1
    shift
    "$BERT" --cache "$CACHE" --json "$file" --quiet --ranks 4 --nodes 2 --optim onebit_adam --warmup-codec int8 \
        --steps $STEPS --freeze-step $FREEZE --eval-every 0 --eval-windows 256 "$@"
}

train() {
    bert "$@" || fail "linnet-bert $*"
}

train "$DIR/whole.jsonl"
want=$(value "$DIR/whole.jsonl" params_hash)
for stop in 6 $FREEZE 17; do
    train "$DIR/first-$stop.jsonl" --stop-after "$stop" --save "$DIR/state-$stop"
    train "$DIR/second-$stop.jsonl" --resume "$DIR/state-$stop" --bucket-kib 64
    have=$(value "$DIR/second-$stop.jsonl" params_hash)
    say "stopped after $stop of $STEPS (freeze $FREEZE): $have, without a stop: $want"
    [ "$have" = "$want" ] || fail "resuming after step $stop changes the result"
done
[ "$(value "$DIR/first-6.jsonl" params_hash)" != "$want" ] || fail "the hash does not see training"

# A save that one rank cannot write leaves what was saved there before.
state=$DIR/state-17
mkdir "$state/rank-1.state.work" || exit 1
bert "$DIR/refused.jsonl" --resume "$state" --stop-after 20 --save "$state" 2>"$DIR/refused.txt" &&
    fail "a state that could not be written counts as saved"
grep -q "cannot write $state/rank-1.state" "$DIR/refused.txt" || fail "the file is not named: $(cat "$DIR/refused.txt")"
rmdir "$state/rank-1.state.work" || exit 1
[ "$(ls "$state" | grep -c work)" = 0 ] || fail "a save that failed leaves $(ls "$state")"
train "$DIR/again.jsonl" --resume "$state"
[ "$(value "$DIR/again.jsonl" params_hash)" = "$want" ] || fail "a save that failed changed what was there"
exit 0
