#!/usr/bin/env bash
# demo.sh BUILD_DIR OUT_DIR [options for linnet-bert]: trains the small BERT once per row of RUNS over an emulated thin
# link, then prints a table and writes OUT_DIR/summary.json and OUT_DIR/loss.png. Called by ./run demo.
set -u
export LC_ALL=C.UTF-8

readonly BUILD=$1 OUT=$2
shift 2
readonly BERT=$BUILD/tests/bert/linnet-bert
readonly GBPS=0.1 RANKS=4 NODES=2 STEPS=700
HERE=$(dirname "${BASH_SOURCE[0]}")
readonly HERE

# file name | options of linnet-bert | title. The first row is what the others are compared with. A row per optimizer, with
# the cheapest warm-up that learns as well.
readonly RUNS='
adam|--optim adam|Adam, f32
onebit_adam|--optim onebit_adam --warmup-codec int8|1-bit Adam, int8 warm-up
lamb|--optim lamb|LAMB, f32
onebit_lamb|--optim onebit_lamb --warmup-codec int8|1-bit LAMB, int8 warm-up
zero_one_adam|--optim zero_one_adam --warmup-codec int4|0/1 Adam, int4 warm-up
'

say() { printf '%s\n' "$*"; }

each_row() { grep -v '^$' <<<"$RUNS"; }

# train NAME OPTIONS TITLE [more options]: one run; its progress line comes from linnet-bert.
train() {
    local name=$1 title=$3 start=$SECONDS options
    read -r -a options <<<"$2"
    shift 3
    say "demo: $title: training"
    if ! "$BERT" --ranks $RANKS --nodes $NODES --emulate-gbps $GBPS --steps $STEPS "${options[@]}" \
        --json "$OUT/$name.jsonl" --cache cache "$@"; then
        say "demo: $title failed; the end of what it wrote ($OUT/$name.jsonl):"
        tail -n 3 "$OUT/$name.jsonl" 2>/dev/null
        return 1
    fi
    say "demo: $title: done in $((SECONDS - start)) s"
}

final_lines() {
    local name
    while IFS='|' read -r name _; do tail -n 1 "$OUT/$name.jsonl"; done < <(each_row)
}

write_summary() {
    {
        printf '{"emulated_gbps": %s, "ranks": %s, "nodes": %s, "runs": [\n' "$GBPS" "$RANKS" "$NODES"
        final_lines | sed '$!s/$/,/'
        printf ']}\n'
    } >"$OUT/summary.json"
}

print_table() {
    say ""
    say "$RANKS ranks on $NODES played nodes, $GBPS Gbit/s emulated between them. Loss: held-out, nats; [MASK]: where the word is hidden."
    paste -d '|' <(each_row | cut -d '|' -f 3) <(final_lines) |
        awk -F '|' -f "$HERE/json.awk" -f "$HERE/demo_table.awk"
    say "MB: of all ranks together over the whole run; inter: between nodes. Time per step is over the emulated link."
}

# Points "step, MB between nodes, seconds, [MASK] loss" of one run.
write_points() {
    awk -f "$HERE/json.awk" -f "$HERE/demo_points.awk" "$OUT/$1.jsonl" >"$OUT/$1.points"
}

plot() {
    local name title lines='' unigram
    if ! command -v gnuplot >/dev/null 2>&1; then
        say "demo: no gnuplot, so no $OUT/loss.png"
        return
    fi
    while IFS='|' read -r name _ title; do
        write_points "$name"
        lines+="'$OUT/$name.points' using COLUMN:4 with lines linewidth 2 title '$title', "
    done < <(each_row)
    unigram=$(final_lines | awk -v key=unigram_entropy -f "$HERE/json.awk" -f "$HERE/json_value.awk" | head -n 1)
    gnuplot >"$OUT/gnuplot.log" 2>&1 <<PLOT || { say "demo: gnuplot failed:"; tail -n 5 "$OUT/gnuplot.log"; return 1; }
set terminal pngcairo size 1500,520
set output '$OUT/loss.png'
set multiplot layout 1,3 title 'Held-out loss on [MASK] positions; $RANKS ranks, $NODES nodes, $GBPS Gbit/s emulated'
set ylabel 'nats per word'
set grid
set key inside top right
set xlabel 'steps'
plot ${lines//COLUMN/1}$unigram with lines dashtype 2 linecolor 'gray' title 'word frequencies'
unset key
set xlabel 'MB sent to other nodes by rank 0'
set logscale x
plot ${lines//COLUMN/2}$unigram with lines dashtype 2 linecolor 'gray' title 'word frequencies'
unset logscale x
set xlabel 'seconds'
plot ${lines//COLUMN/3}$unigram with lines dashtype 2 linecolor 'gray' title 'word frequencies'
unset multiplot
PLOT
}

main() {
    local name options title
    mkdir -p "$OUT" || exit 1
    say "demo: $(each_row | grep -c .) runs of a small BERT; the first start prepares the text (about 20 s), each run takes about a minute"
    while IFS='|' read -r name options title <&3; do
        train "$name" "$options" "$title" "$@" || exit 1
    done 3< <(each_row)
    local result=0
    write_summary || result=1
    plot || result=1
    print_table
    say "Written to $OUT: summary.json, loss.png (with gnuplot), and one JSON line per step in *.jsonl"
    return $result
}

main "$@"
