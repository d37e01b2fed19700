"""Gates and ablations: arithmetic on the last lines of finished runs."""
import math

from converge_runs import loss


def rule_below(rule, mine, _):
    return loss(mine) <= rule.limit, f"{loss(mine):.3f}, limit {rule.limit:g}"


def rule_above_by(rule, mine, other):
    difference = loss(mine) - loss(other)
    return difference <= rule.limit, f"{difference:+.3f}, limit {rule.limit:+g}"


def rule_within(rule, mine, other):
    difference = loss(mine) - loss(other)
    return abs(difference) <= rule.limit, f"{difference:+.3f}, limit {rule.limit:g} either way"


def rule_fewer_bytes(rule, mine, other):
    ratio = other["wire_bytes_all"] / mine["wire_bytes_all"]
    return ratio >= rule.limit, f"{ratio:.2f} times fewer bytes, at least {rule.limit:g}"


def rule_rows_kept(_rule, mine, _other):
    kept = mine.get("unused_rows_equal")
    if mine["last_phase"] == "warmup":
        return False, "never left the warm-up"
    return kept is True, {True: "kept", False: "moved", None: "not looked at"}[kept]


RULES = {"below": rule_below, "above-by": rule_above_by, "within": rule_within, "fewer-bytes": rule_fewer_bytes,
         "rows-kept": rule_rows_kept}


def judge(check, results):
    """(good, text). results: last line by run id; all that the check needs are there.

    An ablation is good when it misses a rule. One whose loss is not finite failed for another reason than the one it is
    there for, and shows nothing.
    """
    mine = results[check.run.id]
    others = {run.name: results[run.id] for run in check.others}
    verdicts = [(rule, *RULES[rule.word](rule, mine, others.get(rule.other))) for rule in check.rules]
    text = "; ".join(f"{rule.word} {rule.other + ' ' if rule.other else ''}{said}" for rule, _, said in verdicts)
    if not check.ablation:
        return verdicts[0][1], text
    if not math.isfinite(loss(mine)):
        return False, f"{text}: its loss is not finite, which shows nothing"
    if all(good for _, good, _ in verdicts):
        return False, f"{text}: the ablation passes, so these gates see nothing"
    return True, f"{text}: misses as it must"
