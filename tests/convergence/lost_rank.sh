#!/usr/bin/env bash
# lost_rank.sh LINNET_BERT CACHE DIR: a rank of a running training is killed: the program ends with an error in bounded
# time, its parent and every survivor name the rank, and no process is left behind.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3
readonly VICTIM=2 DEADLINE_S=60
needs_text
mkdir -p "$DIR" || exit 1
rm -f "$DIR/steps.jsonl"

"$BERT" --cache "$CACHE" --json "$DIR/steps.jsonl" --ranks 4 --nodes 2 --optim adam --steps 100000 --eval-every 0 \
    2>"$DIR/stderr.log" &
parent=$!
trap 'kill "$parent" 2>/dev/null' EXIT
for ((waited = 0; waited < DEADLINE_S * 10; waited++)); do
    [ -s "$DIR/steps.jsonl" ] && break
    sleep 0.1
done
[ -s "$DIR/steps.jsonl" ] || fail "no step within $DEADLINE_S s"

# Children are forked in rank order.
mapfile -t children < <(pgrep -P "$parent" | sort -n)
[ ${#children[@]} = 4 ] || fail "${#children[@]} ranks instead of 4"
kill -KILL "${children[$VICTIM]}"
for ((waited = 0; waited < DEADLINE_S * 10; waited++)); do
    kill -0 "$parent" 2>/dev/null || break
    sleep 0.1
done
kill -0 "$parent" 2>/dev/null && fail "still running $DEADLINE_S s after the loss of a rank"
wait "$parent" && fail "the loss of a rank is no error"
trap - EXIT
for child in "${children[@]}"; do
    kill -0 "$child" 2>/dev/null && fail "process $child is left behind"
done
cat "$DIR/stderr.log"
grep -q "rank $VICTIM was ended by signal 9" "$DIR/stderr.log" || fail "the lost rank is not named"
# The line above comes from the parent, which sees its children end; these from the ranks, which have the library alone.
for ((rank = 0; rank < 4; rank++)); do
    [ $rank = $VICTIM ] && continue
    grep -q "^linnet-bert: rank $rank: .*a peer was lost: rank $VICTIM " "$DIR/stderr.log" ||
        fail "rank $rank does not say that rank $VICTIM was lost"
done
exit 0
