#!/usr/bin/env python3
"""What nvcc made of the kernels: check_kernels.py registers|ptx LOGS TABLE, or `write` to make the table anew.

registers: no kernel uses local memory or spills, and none holds so many registers that fewer warps fit a multiprocessor than
           TABLE (kernels/cuda_registers.txt) promises. Every kernel has a line there, and no line is left over.
ptx:       nothing was contracted, approximated or flushed to zero, so the bytes are those of the host.
LOGS is <build>/cuda: the assembler's reports (*.log) and the PTX (*/*.ptx).
"""
import pathlib
import re
import subprocess
import sys

REGISTERS_PER_SM, WARPS_PER_BLOCK, WARPS_MAX = 65536, 4, 48  # 48: the least of the architectures (sm_86, sm_89)

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'\n.*?\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores,"
                   r" (\d+) bytes spill loads\nptxas info\s+: Used (\d+) registers", re.S)
# Single rounding of a*b+c, approximations, flushing, and whatever leaves f32 between operations.
FORBIDDEN = re.compile(r"\b(fma\.\w+\.f(?:16|32|64)\w*|mad\.\w*\.?f(?:32|64)|\w+(?:\.\w+)*\.approx\S*|\w+(?:\.\w+)*\.ftz\S*|"
                       r"div\.full\S*)")


def plain_names(mangled):
    done = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    strip = lambda name: re.sub(r"^void |\(lnt.*\)$|\s+(?=>)", "", name).replace(", ", ",")
    return [strip(name) for name in done.stdout.splitlines()]


def kernels(logs):
    """(name, architecture, stack, spill bytes, registers) of every kernel."""
    found = [match.groups() for log in sorted(logs.glob("*.log")) for match in ENTRY.finditer(log.read_text())]
    names = plain_names([entry[0] for entry in found])
    return [(name, arch, int(stack), int(out) + int(into), int(registers))
            for name, (_, arch, stack, out, into, registers) in zip(names, found)]


def warps(registers):
    """Warps that fit a multiprocessor: a warp's registers come in units of 256."""
    per_warp = -(-registers * 32 // 256) * 256
    return min(WARPS_MAX, REGISTERS_PER_SM // per_warp // WARPS_PER_BLOCK * WARPS_PER_BLOCK)


def fewest_warps(found):
    result = {}
    for name, _, _, _, registers in found:
        result[name] = min(result.get(name, WARPS_MAX), warps(registers))
    return result


def read_table(table):
    lines = [line.split() for line in table.read_text().splitlines() if line and not line.startswith("#")]
    return {name: int(count) for name, count in lines}


def check_registers(logs, table):
    found, promised = kernels(logs), read_table(table)
    have = fewest_warps(found)
    for name, arch, stack, spilled, registers in found:
        if stack or spilled:
            yield f"{name} for {arch}: {stack} bytes of stack, {spilled} bytes spilled, {registers} registers"
    for name, count in have.items():
        if name not in promised:
            yield f"{name}: {count} warps, no line in {table.name}"
        elif count < promised[name]:
            yield f"{name}: {count} warps per multiprocessor, {promised[name]} promised"
    for name in promised.keys() - have.keys():
        yield f"{name}: in {table.name}, but no such kernel"
    if not found:
        yield "no kernels found"


def check_ptx(logs, _):
    files = sorted(logs.glob("*/*.ptx"))
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if FORBIDDEN.search(line):
                yield f"{path.name}:{number}: {line.strip()}"
    if not files:
        yield "no PTX found"


HEAD = """# Warps per multiprocessor that each kernel's registers leave room for, at least, on every architecture that is built
# (at most 48 are counted, what the smallest multiprocessor holds). tests/cuda/check_kernels.py compares; written by
#     python3 tests/cuda/check_kernels.py write <build>/cuda kernels/cuda_registers.txt
"""


def write_table(logs, table):
    lines = [f"{name} {count}\n" for name, count in sorted(fewest_warps(kernels(logs)).items())]
    table.write_text(HEAD + "".join(lines))
    return []


def main():
    task = {"registers": check_registers, "ptx": check_ptx, "write": write_table}[sys.argv[1]]
    problems = list(task(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
    print("\n".join(problems + [f"{sys.argv[1]}: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
