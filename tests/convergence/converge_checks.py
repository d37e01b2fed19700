"""Gates and ablations: arithmetic on the last lines of finished runs.

A rule is held, or missed, or what it needs did not happen: then it shows nothing, which is good for nobody.
"""
import math

from converge_runs import loss

HELD, MISSED, NOTHING = "held", "missed", "shows nothing"


def verdict(good):
    return HELD if good else MISSED


def rule_below(rule, mine, _):
    return verdict(loss(mine) <= rule.limit), f"{loss(mine):.3f}, limit {rule.limit:g}"


def rule_above_by(rule, mine, other):
    if not math.isfinite(loss(other)):
        return NOTHING, "the other loss is not finite"
    difference = loss(mine) - loss(other)
    return verdict(difference <= rule.limit), f"{difference:+.3f}, limit {rule.limit:+g}"


def rule_within(rule, mine, other):
    if not math.isfinite(loss(other)):
        return NOTHING, "the other loss is not finite"
    difference = loss(mine) - loss(other)
    return verdict(abs(difference) <= rule.limit), f"{difference:+.3f}, limit {rule.limit:g} either way"


def rule_fewer_bytes(rule, mine, other):
    ratio = other["wire_bytes_all"] / mine["wire_bytes_all"]
    return verdict(ratio >= rule.limit), f"{ratio:.2f} times fewer bytes, at least {rule.limit:g}"


def rule_rows_kept(_rule, mine, _other):
    if mine["last_phase"] == "warmup":
        return NOTHING, "never left the warm-up"
    if mine.get("unused_rows_equal") is None:
        return NOTHING, "not looked at"
    return (HELD, "kept") if mine["unused_rows_equal"] else (MISSED, "moved")


RULES = {"below": rule_below, "above-by": rule_above_by, "within": rule_within, "fewer-bytes": rule_fewer_bytes,
         "rows-kept": rule_rows_kept}


def judge(check, results):
    """(good, text). results: last line by run id; all that the check needs are there.

    An ablation is good when it misses a rule and all of them show something. One whose loss is not finite failed for
    another reason than the one it is there for, and shows nothing.
    """
    mine = results[check.run.id]
    others = {run.name: results[run.id] for run in check.others}
    verdicts = [(rule, *RULES[rule.word](rule, mine, others.get(rule.other))) for rule in check.rules]
    text = "; ".join(f"{rule.word} {rule.other + ' ' if rule.other else ''}{said}" for rule, _, said in verdicts)
    found = {word for _, word, _ in verdicts}
    if not check.ablation:
        return verdicts[0][1] == HELD, text
    if not math.isfinite(loss(mine)):
        return False, f"{text}: its loss is not finite, which shows nothing"
    if NOTHING in found:
        return False, f"{text}: shows nothing"
    if MISSED not in found:
        return False, f"{text}: the ablation passes, so these gates see nothing"
    return True, f"{text}: misses as it must"
