#!/usr/bin/env python3
"""House rules that a machine can check. check_style.py ROOT RULE runs one of the RULES below; exit 0 = clean.

The limits are for finding what went wrong, not aims: functions are wanted at 10-20 lines, files at 100-400.
"""
import collections
import pathlib
import re
import sys

FUNCTION_LINES = 60
FILE_LINES = {"tests": 900, "": 500}
LIBRARY = ("src/", "kernels/", "optim/")
CODE = (".c", ".h", ".cu", ".cuh", ".cc")

# pattern, files it is forbidden in, files it is allowed in all the same, why
FORBIDDEN = [
    (r"\b(printf|puts|putchar|perror)\s*\(", LIBRARY, r"^$", "the library prints nothing"),
    (r"\b(exit|_exit|abort)\s*\(", LIBRARY, r"^$", "the library never ends the program"),
    (r"\b(secure_)?getenv\s*\(", LIBRARY, r"^src/base/config\.c$|^src/transport/ucx", "only config.c reads the environment"),
    (r"\b(malloc|calloc|realloc|free|strdup|posix_memalign|aligned_alloc)\s*\(", LIBRARY,
     r"^src/base/memory\.c$|_mpi\.c$|^src/transport/ucx", "memory comes from lnt_calloc and lnt_alloc_aligned"),
    (r"\b(atoi|atol|atof|gets|strcpy|strcat|sprintf)\s*\(", LIBRARY + ("perf/",), r"^$",
     "unchecked by its nature"),
    (r"\b(fmaxf?|fminf?)\s*\(", ("kernels/", "optim/"), r"^$", "their NaN rules differ between machines"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", ("",), r"^tests/lint/", "finish it or file an issue"),
    (r"(?<![\w.])/(work|home|root|Users)/|bash_jobs", ("",), r"^tests/lint/", "paths of one machine do not belong here"),
]


def text_files(root):
    suffixes = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".in", ".json", ".map", ".yml", "")
    skipped = {".git", "build", "out", "cache", "__pycache__"}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if (path.is_file() and path.suffix in suffixes and not skipped & set(relative.parts)
                and not relative.parts[0].startswith("build-")):
            yield str(relative), path


def code_files(root):
    return [(name, path) for name, path in text_files(root) if path.suffix in CODE]


def functions(lines):
    """First and last line of each body: in this style both braces of a function stand alone in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            yield start, number
            start = None


def rule_lengths(root):
    for name, path in code_files(root):
        lines = path.read_text().splitlines()
        limit = FILE_LINES["tests" if name.startswith("tests/") else ""]
        if len(lines) > limit:
            yield f"{name}: {len(lines)} lines, more than {limit}: it has more than one subject"
        for first, last in functions(lines):
            if last - first - 1 > FUNCTION_LINES:
                yield f"{name}:{first}: function of {last - first - 1} lines, more than {FUNCTION_LINES}"


def rule_names(root):
    shared = {"CMakeLists.txt", "README.md", "run"}
    apart = ("include/linnet/", "tests/golden/")  # public headers are named by their folder: linnet/codec.h
    places = collections.defaultdict(list)
    for name, path in text_files(root):
        if path.name not in shared and not name.startswith(apart):
            places[path.name].append(name)
    for found in places.values():
        if len(found) > 1:
            yield f"file names are unique in the repository: {', '.join(found)}"


def strip_comments(text):
    """Comments become blanks, so that prose may name what code may not; line numbers stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)


def rule_forbidden(root):
    for name, path in text_files(root):
        text = path.read_text(errors="replace")
        code = strip_comments(text) if path.suffix in CODE else text
        for pattern, where, exempt, why in FORBIDDEN:
            if not name.startswith(where) or re.search(exempt, name):
                continue
            for number, line in enumerate((text if where == ("",) else code).splitlines(), 1):
                if re.search(r"(?<![\w.>])" + pattern if pattern.startswith(r"\b(") and where != ("",) else pattern, line):
                    yield f"{name}:{number}: {line.strip()[:80]}: {why}"


def rule_comments(root):
    for name, path in code_files(root):
        if not path.read_text().startswith("/*"):
            yield f"{name}: begins without the comment that says what it is for"


RULES = {"lengths": rule_lengths, "names": rule_names, "forbidden": rule_forbidden, "comments": rule_comments}


def main():
    problems = list(RULES[sys.argv[2]](pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(problems + [f"rule {sys.argv[2]}: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
