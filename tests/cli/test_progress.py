#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# What a run prints: on a terminal a live line below the others, alone and under mpirun; in files and pipes none of it;
# and the table of times over the ranks.
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, check, command, finish, prepare  # noqa: E402

COLUMNS = 100
ALONE = [PROGRAM, "work/deck.yaml"]
LONGER = ("data.eval_every=1", "data.eval_batches=20")  # than the tenth of a second between live lines


def environment(**changes):
    return {name: value for name, value in (os.environ | {"TERM": "xterm"} | changes).items()
            if name != "NO_COLOR" or name in changes}


def on_terminal(line, columns=COLUMNS, **changes):
    """Everything that a terminal of so many columns gets from a command, with its '\\n' as the program wrote them."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(line, env=environment(**changes), stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    received = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # Linux ends a pseudo-terminal so
            break
        if not block:
            break
        received += block
    os.close(master)
    check(process.wait(60) == 0, f"exit code 0 ({process.returncode})")
    return received.decode().replace("\r\n", "\n")


def into_file(line, **changes):
    with open(WORK / "stdout", "w") as out:
        result = subprocess.run(line, env=environment(**changes), stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, timeout=100)
    check(result.returncode == 0, f"exit code 0 ({result.returncode})")
    return (WORK / "stdout").read_text()


def screen(text):
    """What is left to read on the terminal: "\\r\\x1b[K" takes the line away."""
    return [line.rsplit("\r\x1b[K", 1)[-1] for line in text.split("\n")]


def live_lines(text):
    return [part for part in re.findall(r"\r\x1b\[K([^\r\n]*)", text) if re.match(r"\[|[ \d]{3}%", part)]


def log(name):
    return (WORK / name / "log.txt").read_text()


def live(name, line):
    text = on_terminal(line)
    lines = live_lines(text)
    check(len(lines) >= 2, f"{name}: a live line that changes ({len(lines)} times)")
    check(all(re.fullmatch(r"\[\x1b\[32m#*\x1b\[0m\.*\]  [ \d]{3}%  step [ \d]\d/20  loss \d.\d{4}  eta [-:\d]+", part)
              for part in lines), f"{name}: bar, percentage, step, loss and time left: {lines[-1]!r}")
    plain = [re.sub(r"\x1b\[\d+m", "", part) for part in lines]
    check(all(len(part) < COLUMNS for part in plain), f"{name}: it fits into its line")
    check([part.rstrip() for part in screen(text)] == [part.rstrip() for part in log(name).split("\n")],
          f"{name}: what stays on the screen is the log, line for line")
    check("\r" not in log(name) and "\x1b" not in log(name), f"{name}: no control characters in the log")
    return plain


def terminals():
    live("alone", [*ALONE, "run.dir=work/alone", *LONGER])
    live("ranks", command(2, "ranks", *LONGER))
    text = on_terminal([*ALONE, "run.dir=work/gray"], NO_COLOR="1")
    check(live_lines(text) and not re.search(r"\x1b\[\d*m", text), "NO_COLOR: a bar without colours")
    text = on_terminal([*ALONE, "run.dir=work/empty"], NO_COLOR="")
    check("\x1b[32m" in text, "an empty NO_COLOR asks for nothing")
    text = on_terminal([*ALONE, "run.dir=work/narrow"], columns=30)
    lines = live_lines(text)
    check(lines and max(len(part) for part in lines) == 29, "a narrow terminal: cut to its width")
    text = on_terminal([*ALONE, "run.dir=work/dumb"], TERM="dumb")
    check("step  1/20" in text and "\r" not in text and "\x1b" not in text, "TERM=dumb: lines only")


def files_and_pipes():
    for name, line in (("file", [*ALONE, "run.dir=work/file"]), ("ranks-file", command(2, "ranks-file"))):
        text = into_file(line)
        check("\nstep  1/20" in text and "\r" not in text and "\x1b" not in text, f"{name}: no control characters")
    pipe = subprocess.run(command(2, "pipe"), env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=100)
    check(b"\nstep  1/20" in pipe.stdout and b"\r" not in pipe.stdout, "pipe: no control characters")


def timing_table():
    """Of the run on two ranks above."""
    lines = log("ranks").splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("time "))
    check(lines[heading].split() == "time calls min s mean s max s slowest ranks share".split(), "the table's heading")
    rows = {row[0]: row[1:] for row in (line.split() for line in lines[heading + 1:])}
    wanted = {"step", "step/forward", "step/backward", "step/reduce", "step/update", "evaluate", "checkpoint"}
    check(wanted <= rows.keys(), f"rows: {', '.join(rows)}")
    check(rows["step"][0] == "20" and rows["step"][-1] == "100.0%", "20 steps are the whole")
    for name, (_, least, mean, most, slowest, ranks, _) in rows.items():
        good = 0 <= float(least) <= float(mean) <= float(most) and slowest in "01" and ranks == "2"
        check(good, f"{name}: {least} <= {mean} <= {most} s over {ranks} ranks, rank {slowest} the slowest")


prepare()
terminals()
files_and_pipes()
timing_table()
finish()
