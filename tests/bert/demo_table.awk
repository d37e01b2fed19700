# The demo's table. Input: title|last JSON line of a run; the first run is what the others are compared with.
BEGIN {
    printf "%-26s %7s %7s %9s", "", "loss", "[MASK]", "accuracy"
    printf " %9s %9s %8s %8s %9s\n", "MB sent", "MB inter", "ratio", "ms/step", "speed-up"
}
{
    inter = number($2, "wire_bytes_inter_all") / 1e6
    step = number($2, "step_ms")
    if (NR == 1) { first_inter = inter; first_step = step }
    ratio = (inter > 0) ? first_inter / inter : 0
    printf "%-26s %7.3f %7.3f %8.1f%%", $1, number($2, "eval_loss"), number($2, "eval_mask_loss"), 100 * number($2, "eval_mask_acc")
    printf " %9.1f %9.1f %7.1fx %8.1f %8.2fx\n", number($2, "wire_bytes_all") / 1e6, inter, ratio, step, first_step / step
    unigram = number($2, "unigram_entropy")
}
END { printf "%-26s %7s %7.3f\n", "word frequencies alone", "", unigram }
