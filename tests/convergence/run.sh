#!/usr/bin/env bash
# run.sh LINNET_BERT CACHE FILE [options]: one training run; FILE receives its JSON lines. Passes if the run ends well and
# all ranks hold the same bits.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly BERT=$1 CACHE=$2 FILE=$3
shift 3
rm -f "$FILE"
needs_text
"$BERT" --cache "$CACHE" --json "$FILE" "$@" || fail "linnet-bert $*"
[ "$(value "$FILE" params_identical)" = true ] || fail "parameters differ between ranks"
say "[MASK] loss $(value "$FILE" eval_mask_loss), unigram $(value "$FILE" unigram_entropy)"
