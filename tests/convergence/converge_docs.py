"""Tables (Markdown) and the plot of finished runs, and their places in docs/convergence.md.

A table stands there between the lines <!-- NAME --> and <!-- /NAME -->; everything else of that page is written by hand.
What was not run is "-", what misses a gate is bold.
"""
import pathlib
import re
import shutil
import statistics
import subprocess

from converge_runs import RANKS, lines, loss
from converge_table import FLAT


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table_of(head, rows):
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows)])


def spread(values):
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


class Pages:
    def __init__(self, table, results, records, seconds):
        self.table, self.results, self.seconds = table, results, seconds
        self.records = {record["check"]: record for record in records}
        self.ablations = {check.run.name for check in table.checks if check.ablation}
        self.rows_only = {check.run.name for check in table.checks if check.rules[0].word == "rows-kept"}
        self.seeds = range(len(table.nodes))

    def _finals(self, name):
        return [(run, self.results[run.id]) for run in self.table.named(name) if run.id in self.results]

    def _flat_mean(self, name, value):
        """Over the runs in which every rank codes; None if there are none."""
        flat = [value(final) for run, final in self._finals(name) if run.nodes == FLAT]
        return statistics.mean(flat) if flat else None

    def _bytes_cells(self, name):
        """MB per rank of the whole run; how many times fewer bytes than the first run of the table, in the mean of steps."""
        def per_step(final):
            return final["wire_bytes_all"] / final["steps"]

        sent = self._flat_mean(name, lambda final: final["wire_bytes_all"] / 1e6 / RANKS)
        mine, first = self._flat_mean(name, per_step), self._flat_mean(self.table.runs[0].name, per_step)
        return [f"{sent:.1f}" if sent else "-", f"{first / mine:.2f}" if mine and first else "-"]

    def _loss_row(self, name):
        finals = self._finals(name)
        by_seed = {run.seed: self._losses_cell(run, final) for run, final in finals}
        return [self.table.titles[name], str(finals[0][1]["steps"]) if finals else "-",
                *(by_seed.get(seed, "-") for seed in self.seeds), spread([loss(final) for _, final in finals]),
                f"{100 * statistics.mean(final['eval_mask_acc'] for _, final in finals):.1f} %" if finals else "-",
                *self._bytes_cells(name)]

    def _losses_cell(self, run, final):
        text = f"{final['eval_loss']:.3f} / {loss(final):.3f}" if final["eval_loss"] is not None else "not finite"
        return text if self.records.get(f"below.{run.id}", {"good": True})["good"] else f"**{text}**"

    def losses(self):
        head = ["optimizer", "steps", *(f"seed {seed}, {self.table.nodes[seed]} nodes" for seed in self.seeds),
                "[MASK], mean ± sd", "accuracy", "MB per rank", "f32 / its bytes"]
        names = [name for name in self.table.titles if name not in self.ablations | self.rows_only]
        return table_of(head, [self._loss_row(name) for name in names])

    def gates(self):
        """Without the rule `below`: the table of losses shows what it needs."""
        found = {}
        for check in self.table.checks:
            if not check.ablation and check.rules[0].word != "below":
                found.setdefault((check.run.name, check.rules[0]), {})[check.run.seed] = self._cell(check)
        rows = []
        for (name, rule), cells in found.items():
            other = self.table.titles.get(rule.other, "")
            limit = "" if rule.word == "rows-kept" else f"{rule.limit:g}"
            rows.append([self.table.titles[name], rule.word, limit, other, *(cells.get(seed, "") for seed in self.seeds)])
        return table_of(["run", "rule", "limit", "compared with", *(f"seed {seed}" for seed in self.seeds)], rows)

    def _cell(self, check):
        record = self.records.get(check.id)
        if record is None:
            return "-"
        text = re.search(rf"^{check.rules[0].word} (?:\S+ )?([+-]?\d+\.\d+|kept|moved)", record["text"])
        return text.group(1) if record["good"] else f"**{text.group(1) if text else record['text']}**"

    def missed(self):
        rows = []
        for check in (check for check in self.table.checks if check.ablation):
            final, record = self.results.get(check.run.id), self.records.get(check.id)
            said = "-" if record is None else record["text"] if record["good"] else f"**{record['text']}**"
            rows.append([check.run.title, str(check.run.seed), f"{final['eval_mask_loss']:.3f}" if final else "-", said])
        return table_of(["ablation", "seed", "[MASK] loss", "rules, of which it must miss one"], rows)

    def times(self):
        rows = []
        for name in self.table.titles:
            took = [self.seconds[run.id] for run in self.table.named(name) if run.id in self.seconds]
            rows.append([self.table.titles[name], str(len(took)), f"{statistics.mean(took):.0f}" if took else "-"])
        return table_of(["run", "times run", "seconds each"], rows)

    def tables(self):
        return {"losses": self.losses(), "gates": self.gates(), "ablations": self.missed(), "times": self.times()}

    def text(self):
        return "\n\n".join(f"{name}\n{table}" for name, table in self.tables().items())


def replace(page, name, table):
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no place {begin}")
    return page[:page.index(begin) + len(begin)] + f"\n{table}\n" + page[page.index(end):]


def update(pages, bench, docs):
    page = pathlib.Path(docs) / "convergence.md"
    text = page.read_text()
    for name, table in pages.tables().items():
        text = replace(text, name, table)
    page.write_text(text)
    picture = bench.out / "convergence.png"
    if picture.exists():
        shutil.copy(picture, pathlib.Path(docs) / "img" / "convergence.png")


def curve(bench, run):
    """Step, MB sent by rank 0, [MASK] loss at every evaluation."""
    step = sent = 0
    for line in lines(bench, run):
        if "step" in line:
            step, sent = line["step"], sent + line["wire_bytes"]
        if line.get("eval_mask_loss") is not None:
            yield step, sent / 1e6, line["eval_mask_loss"]


PLOT = """set terminal pngcairo size 1200,520
set output '{picture}'
set multiplot layout 1,2 title 'Held-out loss where the model sees [MASK], seed 0, 4 ranks'
set ylabel 'nats per word'
set grid
set key top right
set xlabel 'steps'
plot {steps}, {unigram} with lines dashtype 2 linecolor 'gray' title 'word frequencies'
unset key
set xlabel 'MB sent by rank 0'
set logscale x
plot {sent}, {unigram} with lines dashtype 2 linecolor 'gray'
unset multiplot
"""


def plot(table, bench, finished, picture, say):
    drawn = [run for run in finished if run.seed == 0 and run.name in table.plot]
    if not drawn:
        return
    if shutil.which("gnuplot") is None:
        say(f"convergence: no gnuplot, so no {picture}")
        return
    for run in drawn:
        points = (" ".join(map(str, point)) + "\n" for point in curve(bench, run))
        bench.file(run, ".points").write_text("".join(points))
    drawing = ["'%s' using %%d:3 with lines linewidth 2 title '%s'" % (bench.file(run, ".points"), run.title) for run in drawn]
    script = PLOT.format(picture=picture, steps=", ".join(line % 1 for line in drawing),
                         sent=", ".join(line % 2 for line in drawing),
                         unigram=lines(bench, drawn[0])[-1]["unigram_entropy"])
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        say(f"convergence: gnuplot failed: {done.stderr.strip()}")
