# shellcheck shell=bash
# Shared by the convergence scripts. Exit 77: what a run needs is not installed.
export LC_ALL=C.UTF-8
HERE=$(dirname "${BASH_SOURCE[0]}")
readonly HERE
readonly DICTIONARY=/usr/share/dictd/gcide.dict.dz

say() { printf '%s\n' "$*"; }

fail() {
    say "FAILED: $*"
    exit 1
}

needs_text() {
    command -v spm_train >/dev/null 2>&1 || { say "skipped: spm_train is missing (package sentencepiece)"; exit 77; }
    [ -e "$DICTIONARY" ] || { say "skipped: $DICTIONARY is missing (package dict-gcide)"; exit 77; }
}

# value FILE KEY: from the last line of a run.
value() {
    tail -n 1 "$1" | awk -v key="$2" -f "$HERE/../bert/json.awk" -f "$HERE/../bert/json_value.awk"
}

# true_for EXPRESSION: arithmetic on decimal numbers.
true_for() { awk "BEGIN { exit !($1) }"; }

# is_number TEXT
is_number() { [[ $1 =~ ^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$ ]]; }
