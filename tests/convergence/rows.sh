#!/usr/bin/env bash
# rows.sh LINNET_BERT CACHE DIR: without weight decay, table rows that no token uses keep their bits, also where they share
# blocks of signs with rows in use (block 4096: the position table is one half of a block).
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 DIR=$3
needs_text
mkdir -p "$DIR" || exit 1
for block in 1024 4096; do
    for nodes in 2 4; do
        file=$DIR/rows-$block-$nodes.jsonl
        "$BERT" --cache "$CACHE" --json "$file" --quiet --check-rows --check-params --weight-decay 0 --ranks 4 \
            --nodes $nodes --optim onebit_adam --opt-options block=$block --steps 60 --freeze-step 20 --eval-every 0 \
            --eval-windows 256 || fail "linnet-bert, block $block, $nodes nodes"
        [ "$(value "$file" unused_rows_equal)" = true ] || fail "unused rows have moved, block $block, $nodes nodes"
        grep -q '"phase": "compressed"' "$file" || fail "no step was compressed"
        say "block $block, $nodes nodes: unused rows are untouched"
    done
done
exit 0
