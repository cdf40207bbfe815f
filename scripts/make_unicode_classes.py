#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/unicode_ranges.cpp: the classes of all code points as the regular expressions of PyPI's
`tokenizers` and `tiktoken` see them, measured with both. Says where the two differ and then writes nothing.

usage: make_unicode_classes.py   (with libutf8proc, and a Python with tokenizers and tiktoken: scripts/oracles.sh's)
"""
import ctypes
import ctypes.util
import sys
import unicodedata
from pathlib import Path

import tiktoken
from tokenizers import Regex, normalizers, pre_tokenizers

OUTPUT = Path(__file__).resolve().parent.parent / "src/tokenizer/unicode_ranges.cpp"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))

# One bit each, in the order of CharClass in src/tokenizer/unicode.hpp.
CLASSES = (r"\p{L}", r"\p{N}", r"\s", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"\w")
NFC_BIT = 1 << len(CLASSES)
MARKS = "\u0334\u093c\u3099\u094d\u05b0\u0e38\u0321\u031b\u0316\u0301\u0315\u0345"  # of many combining classes


def matched_by_tokenizers(body):
    pieces = pre_tokenizers.Split(Regex(f"[^{body}]+"), "removed").pre_tokenize_str(TEXT)
    return {ord(c) for piece, _ in pieces for c in piece}


def matched_by_tiktoken(body):
    byte_ranks = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("classes", pat_str=f"[{body}]", mergeable_ranks=byte_ranks, special_tokens={})
    return set(map(ord, encoding.decode(encoding.encode_ordinary(TEXT))))  # it drops what is not matched


def nfc_of_utf8proc():
    library = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    library.utf8proc_NFC.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free

    def normalize(text):
        pointer = library.utf8proc_NFC(text.encode())
        result = ctypes.string_at(pointer).decode()
        free(ctypes.c_void_p(pointer))
        return result
    return normalize


def nfc_sets():
    """Code points that a text in NFC may not hold, or only in some places, so that others need no normalization; and
    those that `tokenizers` does not know, because its tables of NFC are older: to it they are letters that nothing is
    composed with or moves across."""
    nfc, other = normalizers.NFC().normalize_str, nfc_of_utf8proc()
    seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals
    unknown = set()
    for c in POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(int(parts[1], 16))
            pair = "".join(chr(int(part, 16)) for part in parts)
            if nfc(pair) != other(pair):
                unknown |= {c, int(parts[1], 16)}
    touched = {c for c in POINTS if c >= 0x300 and
               (c in seconds or unicodedata.combining(chr(c)) or nfc(chr(c)) != chr(c))}
    for c in POINTS:
        unassigned = unicodedata.category(chr(c)) == "Cn"
        if c in touched or unassigned:
            probes = [m + chr(c) + m for m in MARKS]
            if unassigned or any(nfc(probe) != other(probe) for probe in probes):
                unknown.add(c)
    return touched - unknown, unknown


def ranges_of(bits):
    ranges = []
    for c, value in enumerate(bits):
        if not ranges or ranges[-1][1] != value:
            ranges.append((c, value))
    return ranges


def main():
    bits = [0] * 0x110000
    for number, body in enumerate(CLASSES):
        members = matched_by_tokenizers(body)
        other = matched_by_tiktoken(body)
        if body == r"\w":  # only added tokens ask for it, and there `tokenizers` uses the same engine as tiktoken
            members = other
        if members != other:
            sys.exit(f"[{body}]: tokenizers and tiktoken differ on {sorted(map(hex, members ^ other))}")
        for c in members:
            bits[c] |= 1 << number
    touched, unknown = nfc_sets()
    for c in touched:
        bits[c] |= NFC_BIT
    for c in unknown:
        bits[c] |= 2 * NFC_BIT
    assigned = [f"{c:X}" for c in sorted(unknown) if unicodedata.category(chr(c)) != "Cn"]
    print(f"assigned, but not known to the NFC of tokenizers: {' '.join(assigned)}")
    numbers = [f"0x{start << 8 | value:x}" for start, value in ranges_of(bits)]
    lines = [""]
    for number in numbers:
        if len(lines[-1]) + len(number) + 2 > 120:
            lines.append("")
        lines[-1] += ("" if lines[-1] == "" else " ") + number + ","
    OUTPUT.write_text(
        "// SPDX-License-Identifier: Apache-2.0\n"
        "/// Classes of the code points as ranges, made by scripts/make_unicode_classes.py: do not edit.\n"
        '#include "unicode.hpp"\n\nnamespace llmtrain {\n\n// clang-format off\n'
        f"const std::array<std::uint32_t, class_range_count> class_ranges = {{\n" + "\n".join(lines) +
        "\n};\n// clang-format on\n\n}  // namespace llmtrain\n")
    print(f"{len(numbers)} ranges (class_range_count), tokenizers and tiktoken agree on all classes")


if __name__ == "__main__":
    main()
