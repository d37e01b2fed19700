"""Reads convergence.table: runs, the checks between them, curves of the plot. Refuses what it does not understand."""
import dataclasses
import pathlib
import shlex

TABLE = pathlib.Path(__file__).parent / "convergence.table"
FLAT = 4  # nodes of 4 ranks: every rank is a node


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run: a line of the table with one of its seeds."""
    name: str
    seed: int
    nodes: int
    in_test: bool
    options: tuple
    title: str

    @property
    def id(self):
        return f"{self.name}-s{self.seed}"


@dataclasses.dataclass(frozen=True)
class Rule:
    word: str
    limit: float
    other: str = ""  # name of the run that is compared with


@dataclasses.dataclass(frozen=True)
class Check:
    """A gate has one rule, which must hold. An ablation has some, of which one must be missed."""
    run: Run
    others: tuple
    rules: tuple
    ablation: bool

    @property
    def id(self):
        if self.ablation:
            return f"ablation.{self.run.id}"
        rule = self.rules[0]
        return ".".join(part for part in (rule.word, self.run.name, rule.other) if part) + f"-s{self.run.seed}"

    @property
    def needs(self):
        return (self.run,) + self.others


# word: numbers of runs compared with, whether it has a limit
RULES = {"below": (0, True), "above-by": (1, True), "within": (1, True), "fewer-bytes": (1, True), "rows-kept": (0, False)}


class TableError(Exception):
    pass


class Table:
    def __init__(self, text):
        self.nodes, self.runs, self.checks, self.plot = [], [], [], []
        self.titles = {}
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0].strip()
            if line:
                self._read(number, line)
        self._demand_checks()

    def _read(self, number, line):
        word, _, rest = line.partition(" ")
        readers = {"nodes": self._nodes, "run": self._run, "gate": self._gate, "ablation": self._ablation, "plot": self._plot}
        try:
            readers[word]([part.strip() for part in rest.split("|")])
        except (KeyError, ValueError, IndexError) as error:
            raise TableError(f"{TABLE.name}, line {number}: {line}: {error!r}") from error

    def _nodes(self, parts):
        self.nodes = [int(n) for n in parts[0].split()]

    def _run(self, parts):
        name, seeds, where, options, title = parts
        if name in self.titles or where not in ("test", "full"):
            raise ValueError(f"{name} twice, or {where} is neither test nor full")
        self.titles[name] = title
        for seed in seeds.split():
            self.runs.append(Run(name, int(seed), self.nodes[int(seed)], where == "test", tuple(shlex.split(options)), title))

    def _seeds(self, names):
        """For every seed that all of them have: their runs."""
        first, *others = names
        for run in self.named(first):
            found = [other for name in others for other in self.named(name) if other.seed == run.seed]
            if len(found) == len(others):
                yield run, tuple(found)

    def named(self, name):
        found = [run for run in self.runs if run.name == name]
        if not found:
            raise ValueError(f"no run {name}")
        return found

    def _rule(self, words):
        n_others, has_limit = RULES[words[0]]
        limit, rest = (float(words[1]), words[2:]) if has_limit else (0.0, words[1:])
        return n_others, limit, rest

    def _gate(self, parts):
        words = parts[0].split()
        n_others, limit, names = self._rule(words)
        if n_others and len(names) != 1 + n_others:
            raise ValueError("two runs are compared")
        groups = [names] if n_others else [[name] for name in names]
        for group in groups:
            rule = Rule(words[0], limit, *group[1:])
            found = [Check(run, others, (rule,), False) for run, others in self._seeds(group)
                     if rule.word != "fewer-bytes" or run.nodes == FLAT]
            if not found:
                raise ValueError("no seed in common")
            self.checks += found

    def _ablation(self, parts):
        name, *texts = parts
        rules = []
        for text in texts:
            words = text.split()
            _, limit, others = self._rule(words)
            rules.append(Rule(words[0], limit, *others))
        others = [rule.other for rule in rules if rule.other]
        found = [Check(run, runs, tuple(rules), True) for run, runs in self._seeds([name, *others])]
        if not found or not rules:
            raise ValueError("nothing to miss")
        self.checks += found

    def _plot(self, parts):
        self.plot = parts[0].split()
        for name in self.plot:
            self.named(name)

    def _demand_checks(self):
        judged = {check.run.name for check in self.checks}
        for name in self.titles:
            if name not in judged:
                raise TableError(f"{TABLE.name}: run {name} is judged by no gate and no ablation")


def read():
    return Table(TABLE.read_text())
