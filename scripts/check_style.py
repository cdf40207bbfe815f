#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House style, levels and the seam: every violation as "file:line: what; remedy", exit 1 if there is one.

usage: check_style.py [--root DIR] [--fix] [--no-format] [FILE...]
--fix lets clang-format rewrite the C++ files; without it they are only compared, where clang-format is installed.
"""
import argparse
import ast
import bisect
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_COLUMNS = 120

# A file includes its own module and lower levels only; modules of one level may meet, except those of PEERLESS.
LEVELS = {
    "base": 0, "config": 1, "topology": 1, "backend": 2, "memory": 3, "params": 4, "parallel": 5, "model": 6,
    "data": 7, "schedule": 7, "optim": 7, "checkpoint": 7, "metrics": 7, "tokenizer": 7, "importers": 7,
    "driver": 8, "plan": 8, "tools": 8,
}
PEERLESS = 7
MAIN_LEVEL = 8

CUDA_PLACES = r"(src/backend|kernels)/cuda/"
HDF5_PLACES = r"(include/llmtrain|src)/checkpoint/|tests/unit/hostile_shards"
MPI_PLACES = r"(include/llmtrain|src)/base/mpi|src/backend/(cpu|cuda)/"

# The seam: (what, identifiers, headers, where both are allowed).
SEAM = (
    ("CUDA", r"\bcuda[A-Z]\w*", r"cuda(_\w+)?\.h|cuda_\w+\.h(pp)?|cuda/.*", CUDA_PLACES),
    ("NCCL", r"\bnccl[A-Z]\w*", r"nccl.*\.h", CUDA_PLACES),
    ("cuBLAS", r"\bcublas(Lt)?[A-Z]\w*", r"cublas.*\.h", CUDA_PLACES),
    ("NVTX", r"\bnvtx[A-Z]\w*", r"nvtx.*", CUDA_PLACES),
    ("cuDNN", r"\bcudnn\w*", r"cudnn.*", CUDA_PLACES),
    ("oneDNN", r"\bdnnl\w*", r"(oneapi/)?dnnl.*", r"(src/backend|kernels)/cpu/"),
    ("MPI", r"\bMPI_[A-Z]\w*", r"mpi\.h|llmtrain/base/mpi_native\.hpp", MPI_PLACES),
    ("HDF5", r"\bH5(?:[ADEFGILOPRSTZ]|PL|VL)[a-z_]\w*", r"hdf5.*\.h|H5.*\.h", HDF5_PLACES),
    ("yaml-cpp", r"\bYAML::", r"yaml-cpp/.*", r"(include/llmtrain|src)/config/"),
)

CPP = {".cpp", ".hpp", ".cu", ".cuh", ".h", ".in"}
HEADERS = {".hpp", ".cuh", ".h"}
HASHED = {".py", ".sh", ".cmake", ".sbatch", ".yaml"}
HASHED_NAMES = {"CMakeLists.txt", "Makefile", "run"}
TEXT = CPP | HASHED | {".md", ".json", ".txt"}

# Names of places and people that only make sense where a file was written.
PRIVATE_NAMES = re.compile(r"(?<![\w.])/(?:home/\w|root/|wor[k]/)|\.\./share[d]\b")

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
                   r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>]+)>|"([^"]+)")', re.M)
# Head of a scope that holds declarations: the keyword, a name, bases, and nothing after them.
SCOPE = re.compile(r'\b(namespace|class|struct|union|enum)\b\s*(\[\[[^\]]*\]\]\s*)?[\w:]*?\s*(<[^;{}]*>\s*)?(final\s*)?'
                   r'(:[^:;{}].*)?$|\bextern\s*"\s*"\s*$', re.S)


class Source:
    """One file: its text, the same text without comments, strings and directives, and the findings in it."""

    def __init__(self, root, path):
        self.name = path.relative_to(root).as_posix()
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()
        self.findings = []
        if self.is_cpp():
            bare = TOKEN.sub(lambda m: blank(m.group(), '"'), self.text)
            self.code = DIRECTIVE.sub(lambda m: blank(m.group(), " "), bare)
            self.line_starts = [m.end() for m in re.finditer("\n", self.text)]

    def is_cpp(self):
        return self.suffix in CPP

    def is_hashed(self):
        return self.suffix in HASHED or Path(self.name).name in HASHED_NAMES

    def line_of(self, position):
        return bisect.bisect_right(self.line_starts, position) + 1

    def report(self, line, what, remedy):
        self.findings.append((line, f"{self.name}:{line}: {what}; {remedy}"))


def blank(text, edge):
    """Spaces in place of `text`, with its newlines kept; a string keeps its quotes, so that it is still an argument."""
    spaces = re.sub(r"[^\n]", " ", text)
    return f"{edge}{spaces[2:]}{edge}" if text[0] in "\"R" and len(text) > 1 else spaces


def check_opening(source):
    """SPDX line first (after #!); in the same comment a sentence that says what the file is for."""
    mark = "//" if source.is_cpp() else "#"
    first = 1 if source.lines and source.lines[0].startswith("#!") else 0
    head = source.lines[first:first + 6] + [""]
    if head[0] != f"{mark} SPDX-License-Identifier: Apache-2.0":
        source.report(first + 1, "no licence line",
                      f"write '{mark} SPDX-License-Identifier: Apache-2.0' as the first line")
    opening = itertools.takewhile(lambda line: line.startswith((mark, '"""')), head[1:])
    described = r"/// \S" if source.is_cpp() else r'# (?!ranks:|label:)\S|"""\S'
    if not any(re.match(described, line) for line in opening):
        source.report(first + 2, "no description", "say in a line after the licence what the file is for ('"
                      + ("/// ..." if source.is_cpp() else "# ...") + "')")


def check_lines(source):
    """Length of the file and of its lines; names of private places."""
    if len(source.lines) > MAX_FILE_LINES:
        source.report(MAX_FILE_LINES + 1, f"{len(source.lines)} lines, more than {MAX_FILE_LINES}",
                      "split the file by phase")
    for number, line in enumerate(source.lines, 1):
        match = PRIVATE_NAMES.search(line)
        if match:
            source.report(number, f"'{match.group()}' names a place that others do not have",
                          "use a path inside the repository, or an argument")
        if source.suffix == ".py" and len(line) > MAX_COLUMNS:
            source.report(number, f"{len(line)} columns, more than {MAX_COLUMNS}", "break the line")


def check_header(source):
    if source.suffix not in HEADERS:
        return
    if not re.search(r"^#pragma once$", source.text, re.M):
        source.report(3, "a header without '#pragma once'", "write it after the description")
    for match in re.finditer(r"\busing\s+namespace\b", source.code):
        source.report(source.line_of(match.start()), "'using namespace' in a header",
                      "name what is used, or move it into the .cpp file")


def check_seam(source):
    """Vendor identifiers and headers only in their places (tests may use what they test with)."""
    if not re.match(r"(include|src|kernels)/", source.name):
        return
    for what, identifiers, headers, places in SEAM:
        if re.match(places, source.name):
            continue
        remedy = f"{what} is allowed in {places} only: go through the seam (include/llmtrain/backend) or its owner"
        for match in re.finditer(identifiers, source.code):
            source.report(source.line_of(match.start()), f"{what} identifier '{match.group()}'", remedy)
        for match in INCLUDE.finditer(source.text):
            header = match.group(1) or match.group(2)
            if re.fullmatch(headers, header):
                source.report(source.line_of(match.start()), f"{what} header '{header}'", remedy)


def module_of(name):
    match = re.match(r"(?:include/llmtrain|src)/([a-z_]+)/", name)
    if match:
        return match.group(1)
    return "backend" if name.startswith("kernels/") else None


def included_module(root, source, header):
    """Module that `header` belongs to: llmtrain/..., or a private header beside the file, under src/ or kernels/."""
    if header.startswith("llmtrain/"):
        return module_of("include/" + header)
    for base in (Path(source.name).parent, Path("src"), Path("kernels")):
        if (root / base / header).is_file():
            return module_of((root / base / header).resolve().relative_to(root).as_posix())
    return None


def check_levels(root, source):
    own = module_of(source.name)
    if own is None and source.name != "src/main.cpp":
        return
    if own is not None and own not in LEVELS:
        source.report(1, f"module '{own}' has no level", "add it to LEVELS in scripts/check_style.py")
        return
    level = MAIN_LEVEL if own is None else LEVELS[own]
    for match in INCLUDE.finditer(source.text):
        header = match.group(1) or match.group(2)
        other = included_module(root, source, header)
        if other is None or other == own or other not in LEVELS:
            continue
        line = source.line_of(match.start())
        if LEVELS[other] > level:
            source.report(line, f"{own} (level {level}) includes {other} (level {LEVELS[other]})",
                          "includes go down only: move what is needed to a lower module, or pass it in")
        elif level == LEVELS[other] == PEERLESS:
            source.report(line, f"{own} includes {other}, of the same level",
                          "these modules do not know each other: pass values through driver/")


def function_spans(code):
    """(start, end) offsets of the bodies at namespace or class scope, from the first line of the head to the brace."""
    open_scopes = []  # True where the scope is a namespace, class or the like
    head = 0
    function_start = None
    for match in re.finditer(r"[;{}]", code):
        at, sign = match.start(), match.group()
        if sign == "{":
            text = code[head:at]
            outer = SCOPE.search(text.rstrip()) is not None
            if not outer and all(open_scopes) and "(" in text:
                function_start = (len(open_scopes), head + len(text) - len(text.lstrip()))
            open_scopes.append(outer)
        elif sign == "}" and open_scopes:
            open_scopes.pop()
            if function_start is not None and len(open_scopes) == function_start[0]:
                yield function_start[1], at
                function_start = None
        head = at + 1


def check_function_length(source):
    if source.is_cpp():
        spans = [(source.line_of(a), source.line_of(b)) for a, b in function_spans(source.code)]
    elif source.suffix == ".py":
        spans = [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(source.text))
                 if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    else:
        return
    for first, last in spans:
        if last - first + 1 > MAX_FUNCTION_LINES:
            source.report(first, f"a function of {last - first + 1} lines, more than {MAX_FUNCTION_LINES}",
                          "split it into named steps")


def check_file(root, path):
    source = Source(root, path)
    check_lines(source)
    if source.is_cpp() or source.is_hashed():
        check_opening(source)
    if source.is_cpp():
        check_header(source)
        check_seam(source)
        check_levels(root, source)
    check_function_length(source)
    return [text for _, text in sorted(source.findings)]


def tracked_files(root):
    """What git tracks or would; None where `root` is not a repository's top, or there is no git."""
    git = ["git", "-C", str(root)]
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
        listing = subprocess.run([*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                 capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    if Path(top.stdout.strip()).resolve() != root:
        return None
    return [root / name for name in listing.stdout.split("\0") if name]


def project_files(root):
    """The files that the rules are for; without git, all but what .gitignore leaves out."""
    paths = tracked_files(root)
    if paths is None:
        paths = [p for p in sorted(root.rglob("*"))
                 if not re.match(r"build|runs$|data$|\.git$", p.relative_to(root).parts[0])]
    return [p for p in paths if p.is_file() and not p.is_symlink()
            and (p.suffix in TEXT or p.name in HASHED_NAMES)]


def check_format(root, paths, fix):
    """clang-format's own messages; [] where it is not installed."""
    tool = shutil.which("clang-format")
    files = [str(p) for p in paths if p.suffix in CPP - {".in"}]
    if tool is None or not files:
        if tool is None:
            print("check_style: clang-format is not installed; layout was not checked", file=sys.stderr)
        return []
    mode = ["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=1"]
    run = subprocess.run([tool, "--style=file", *mode, *files], cwd=root, capture_output=True, text=True)
    places = re.findall(r"^(\S+?:\d+):\d+: error: ", run.stderr, re.M)
    if run.returncode != 0 and not places:
        return [run.stderr.strip()]
    return [f"{place.removeprefix(str(root) + '/')}: not laid out by .clang-format; run 'scripts/check_style.py --fix'"
            for place in places]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--fix", action="store_true", help="let clang-format rewrite the C++ files")
    parser.add_argument("--no-format", action="store_true", help="do not run clang-format")
    parser.add_argument("files", nargs="*", type=Path, help="only these (default: all of the project)")
    arguments = parser.parse_args(argv)
    root = arguments.root.resolve()
    paths = [p.resolve() for p in arguments.files] or project_files(root)
    findings = [] if arguments.no_format else check_format(root, paths, arguments.fix)
    for path in paths:
        findings += check_file(root, path)
    print("\n".join(findings) if findings else f"check_style: {len(paths)} files, nothing to mend")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
