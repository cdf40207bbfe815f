#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a few megabytes of English prose as JSONL, one {"text": ...} a chapter, for `make demo`.

The prose is the World English Bible (public domain) as the distribution's package sword-text-web carries it: the
package is downloaded and unpacked in the output's folder, not installed. Where it cannot be had, the licences and the
docstrings of Python's library on this machine take its place. The same input gives the same bytes; an output that is
there is left alone.

usage: make_demo_corpus.py [OUTPUT]        (data/demo/corpus.jsonl)
"""
import ast
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

PACKAGE = "sword-text-web"
MINIMUM_BYTES = 200_000
ASCII = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--",
                       "\u2026": "...", "\u00a0": " "})


def say(text):
    print(f"demo corpus: {text}", flush=True)


def run(command, folder):
    """True if the command succeeds; its words are kept back unless it fails."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{command[0]}: {error}")
        return False
    if done.returncode != 0:
        say(f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.returncode == 0


def fetch_package(folder):
    """Folder of the unpacked package, or None."""
    unpacked = folder / PACKAGE
    if not unpacked.is_dir():
        say(f"downloading the package {PACKAGE} (4 MB)")
        if not run(["apt-get", "download", PACKAGE], folder):
            # No package lists yet: only root can fetch them.
            if os.geteuid() != 0 or not run(["apt-get", "update"], folder):
                return None
            if not run(["apt-get", "download", PACKAGE], folder):
                return None
        archives = sorted(folder.glob(f"{PACKAGE}_*.deb"))
        if not archives or not run(["dpkg", "-x", archives[-1].name, f"{PACKAGE}.part"], folder):
            return None
        (folder / f"{PACKAGE}.part").rename(unpacked)
        for archive in archives:
            archive.unlink()
    return unpacked


def read_blocks(folder, testament):
    """Marked-up text of one testament. Its .bzs is a table of (offset, packed bytes, plain bytes), 32-bit
    little-endian, of the zlib streams in its .bzz: the SWORD project's zText format."""
    table = (folder / f"{testament}.bzs").read_bytes()
    packed = (folder / f"{testament}.bzz").read_bytes()
    blocks = []
    for offset, size, _ in struct.iter_unpack("<III", table[:len(table) // 12 * 12]):
        blocks.append(zlib.decompress(packed[offset:offset + size]))
    return b"".join(blocks).decode("utf-8")


def clean_markup(text):
    """Plain paragraphs of one chapter of OSIS markup: no notes, no titles, no tags."""
    text = re.sub(r"<note\b.*?</note>|<title\b.*?</title>", " ", text, flags=re.S)
    text = re.sub(r"""<(?:div|lg|p)\b[^>]*\beID=[^>]*>|</(?:p|lg)>|<milestone type="x-p"[^>]*>""", "\n\n", text)
    text = re.sub(r"<l\b[^>]*\beID=[^>]*>|</l>|<lb\b[^>]*>", "\n", text)
    text = re.sub(r"<[^>]*>", "", text)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return tidy(text)


def tidy(text):
    """Typographic marks as ASCII, single spaces, one blank line between paragraphs."""
    text = text.translate(ASCII).encode("ascii", "ignore").decode("ascii")
    text = re.sub(r"[ \t\r]+", " ", text)
    text = re.sub(r" +([,.;:!?)])", r"\1", re.sub(r"\( +", "(", text))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def package_documents(folder):
    """One text a chapter."""
    places = sorted(folder.glob("usr/share/sword/modules/texts/ztext/*/ot.bzz"))
    if not places:
        say(f"{folder} does not hold what was expected")
        return []
    documents = []
    for testament in ("ot", "nt"):
        chapters = re.split(r"<chapter\b[^>]*\bsID=[^>]*>", read_blocks(places[0].parent, testament))[1:]
        for chapter in chapters:
            documents.append(clean_markup(re.split(r"<chapter\b[^>]*\beID=", chapter)[0]))
    return documents


def local_documents():
    """One text a dozen paragraphs of the system's licences and of the docstrings of Python's standard library."""
    licences = [path for path in sorted(Path("/usr/share/common-licenses").glob("*")) if not path.is_symlink()]
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in licences]
    library = Path(os.__file__).parent
    for path in sorted(library.rglob("*.py")):
        if not {"test", "tests", "site-packages", "dist-packages"} & set(path.relative_to(library).parts):
            texts.append("\n\n".join(docstrings(path)))
    documents = []
    for text in texts:
        prose = [p for p in re.split(r"\n\s*\n", text) if len(p) > 120 and not re.search(r">>>|==|--|__|\w\(", p)]
        for first in range(0, len(prose), 12):
            documents.append(tidy("\n\n".join(re.sub(r"\s*\n\s*", " ", p).strip() for p in prose[first:first + 12])))
    return documents


def docstrings(path):
    """Docstrings of a Python file; none where it cannot be parsed."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="ignore"))
    except (SyntaxError, ValueError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]


def main():
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "data/demo/corpus.jsonl")
    if output.is_file():
        say(f"{output} is there")
        return 0
    output.parent.mkdir(parents=True, exist_ok=True)
    package = fetch_package(output.parent)
    documents = package_documents(package) if package else []
    if sum(map(len, documents)) < MINIMUM_BYTES:
        say(f"{PACKAGE} cannot be had here; using texts of this machine")
        documents = local_documents()
    documents = [text for text in documents if len(text) > 100]
    size = sum(map(len, documents))
    if size < MINIMUM_BYTES:
        say(f"only {size} bytes of prose found; put a JSONL file with a text a line at {output}")
        return 1
    part = output.with_name(output.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        for text in documents:
            file.write(json.dumps({"text": text}) + "\n")
    part.replace(output)
    say(f"{output}: {len(documents)} documents, {size / 1e6:.1f} MB of text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
