#!/usr/bin/env bash
# gate.sh RULE ...: compares finished runs by their held-out loss on [MASK] positions.
#   below LIMIT RUN            loss <= LIMIT
#   above-by LIMIT RUN OTHER   loss(RUN) - loss(OTHER) <= LIMIT
#   within LIMIT RUN OTHER     |loss(RUN) - loss(OTHER)| <= LIMIT
#   broken TOTAL LIMIT RUN OTHER   an ablation: passes only if RUN misses `below TOTAL` or `within LIMIT` of OTHER
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# loss FILE: sets `loss`; a run that is not there was skipped, one that diverged counts as infinite.
loss_of() {
    [ -s "$1" ] || { say "skipped: no run $1"; exit 77; }
    loss=$(value "$1" eval_mask_loss)
    is_number "$loss" || loss=1e9
}

rule=$1
case $rule in
below)
    loss_of "$3"
    say "$(basename "$3"): $loss, limit $2"
    true_for "$loss <= $2" || fail "above the limit"
    ;;
above-by | within)
    loss_of "$3"
    a=$loss
    loss_of "$4"
    say "$(basename "$3"): $a; $(basename "$4"): $loss; difference $(awk "BEGIN { print $a - $loss }"), limit $2"
    true_for "$a - $loss <= $2" || fail "too far above"
    [ "$rule" = above-by ] || true_for "$loss - $a <= $2" || fail "too far below"
    ;;
broken)
    loss_of "$4"
    a=$loss
    loss_of "$5"
    say "$(basename "$4"): $a; $(basename "$5"): $loss; must be above $2 or more than $3 away"
    true_for "$a <= $2 && $a - $loss <= $3 && $loss - $a <= $3" && fail "the ablation passes the gates: they see nothing"
    ;;
*) fail "no rule $rule" ;;
esac
exit 0
