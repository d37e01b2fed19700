#!/usr/bin/env python3
"""Who may include whom. Reads the table below and fails on a wrong include; exit 0 = clean.

Dependencies point down only: an upward call goes through a function pointer that was handed down.
"""
import pathlib
import re
import sys

# layer: what its files may include besides themselves and system headers; a file name narrows a layer to that file
ALLOWED = {
    "include/linnet": [],
    "kernels": ["include/linnet"],
    "src/base": ["include/linnet"],
    "src/topo": ["include/linnet", "src/base"],
    "src/transport": ["include/linnet", "src/base", "src/topo"],
    "src/coll": ["include/linnet", "src/base", "src/topo", "src/transport/transport.h", "src/transport/frame.h",
                 "src/transport/mesh.h", "kernels/codec.h"],
    "src/core": ["include/linnet", "src", "kernels"],
    "optim": ["include/linnet", "kernels", "src/base"],
}

# what a public header may take from the system: the C standard library, nothing else
STANDARD = set("""assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype""".split())

# headers of foreign libraries and the only files that may ask for them
FOREIGN = [
    (r"^(ucp|uct|ucs|ucm)/", r"^src/transport/ucx[^/]*$"),
    (r"^sodium(/|\.h$)", r"^src/core/auth_[^/]*_module\.c$"),
    (r"^mpi\.h$", r"^(include/linnet/mpi\.h|src/core/[^/]*_mpi\.c)$"),
    (r"^cuda_(runtime|fp16|bf16)\.h$", r"^kernels/(cuda_compat\.h|[^/]*_cuda\.cu)$"),
    (r"^(hwloc|cuda|nccl|openssl)", r"^$"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    return next((layer for layer in ALLOWED if path.startswith(layer + "/")), None)


def may_include(path, layer, target):
    allowed = ALLOWED[layer] + [layer]
    return any(target == entry or target.startswith(entry + "/") for entry in allowed)


def check_system(path, layer, name):
    for header, files in FOREIGN:
        if re.search(header, name):
            return None if re.search(files, path) else f"<{name}> belongs to a part of its own"
    if layer == "include/linnet" and name.removesuffix(".h") not in STANDARD:
        return f"<{name}> is no standard header"
    return None


def check_line(root, path, layer, quote, name):
    if quote == "<":
        if not name.startswith("linnet/"):
            return check_system(path, layer, name)
        target = "include/" + name
    else:
        full = (root / path).parent / name
        if not full.exists():
            return f'"{name}" does not exist beside the file'
        target = str(full.resolve().relative_to(root))
    return None if may_include(path, layer, target) else f"{layer} may not include {target}"


def check_file(root, path):
    layer = layer_of(path)
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        problem = check_line(root, path, layer, *match.groups()) if match else None
        if problem:
            yield f"{path}:{number}: {problem}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = sorted(str(p.relative_to(root)) for layer in ALLOWED for p in (root / layer).rglob("*")
                   if p.suffix in (".c", ".h", ".cu", ".cuh", ".in"))
    problems = [problem for path in files for problem in check_file(root, path)]
    print("\n".join(problems + [f"{len(files)} files, {len(problems)} wrong includes"]))
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
