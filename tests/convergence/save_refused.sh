#!/usr/bin/env bash
# save_refused.sh LINNET_BERT CACHE DIR: a save that one rank cannot write fails by name and leaves what was saved before.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3
readonly STATE=$DIR/state
needs_text
rm -rf "$DIR"
mkdir -p "$DIR" || exit 1

# bert FILE [options]
bert() {
    local file=$1
    shift
    "$BERT" --cache "$CACHE" --json "$file" --quiet --ranks 4 --nodes 2 --optim onebit_adam --steps 12 --freeze-step 5 \
        --eval-every 0 --eval-windows 64 "$@"
}

bert "$DIR/whole.jsonl" || fail "linnet-bert"
bert "$DIR/first.jsonl" --stop-after 8 --save "$STATE" || fail "linnet-bert, saving"
mkdir "$STATE/rank-1.state.work" || exit 1
bert "$DIR/refused.jsonl" --resume "$STATE" --stop-after 10 --save "$STATE" 2>"$DIR/refused.txt" &&
    fail "a state that could not be written counts as saved"
grep -q "cannot write $STATE/rank-1.state" "$DIR/refused.txt" || fail "the file is not named: $(cat "$DIR/refused.txt")"
rmdir "$STATE/rank-1.state.work" || exit 1
[ "$(ls "$STATE" | grep -c work)" = 0 ] || fail "a save that failed leaves $(ls "$STATE")"
bert "$DIR/again.jsonl" --resume "$STATE" || fail "linnet-bert, resuming"
[ "$(value "$DIR/again.jsonl" params_hash)" = "$(value "$DIR/whole.jsonl" params_hash)" ] ||
    fail "a save that failed changed what was there"
exit 0
