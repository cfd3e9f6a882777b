#!/usr/bin/env python3
"""Measures which engine is fastest in which setting, and writes the tables of docs/which_engine.md.

    sudo bench/which_engine.py [--lockstep build/release/bin/lockstep] [--write docs/which_engine.md]
                               [--only one-host,2-hosts-1gbit,...] [--quick] [--keep FOLDER]

Runs `lockstep bench all_reduce` and `lockstep bench ddp` on one host and between network namespaces (which need root),
each with every available engine, and prints Markdown. With --write it replaces the text between the two markers of that
page. Takes about 15 minutes on 2 idle cores. --quick runs everything once, too briefly for meaningful results. --keep
stores the JSON of every run in a folder; a run whose JSON already exists there is not repeated.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

NAMES = {"lockstep": "Lockstep", "gloo": "Gloo", "openmpi": "Open MPI", "mpich": "MPICH", "torch": "PyTorch"}
PEERS = ["gloo", "openmpi", "mpich"]
LINKS = {"": "unshaped links", "10gbit": "10 Gbit/s", "1gbit": "1 Gbit/s"}
MODELS = {"mlp": 64, "gpt": 16, "cnn": 64}  # samples per rank
MARKERS = ("<!-- measured: begin -->\n", "<!-- measured: end -->\n")
LOSS = 0.97  # below this ratio Lockstep counts as slower; from here to 1 the difference is within the noise


class Place:
    """A setting: `ranks` on one host, or one rank on each of `hosts`, with links of `rate`."""

    def __init__(self, hosts, ranks, rate=""):
        self.hosts, self.ranks, self.rate = hosts, ranks, rate

    def key(self):
        if self.hosts == 1:
            return "one-host" + ("" if self.ranks == 2 else f"-{self.ranks}-ranks")
        return f"{self.hosts}-hosts" + (f"-{self.rate}" if self.rate else "")

    def title(self):
        if self.hosts == 1:
            return f"one host, {self.ranks} ranks"
        return f"{self.hosts} hosts, one rank each, {LINKS[self.rate]}"

    def options(self):
        if self.hosts == 1:
            return ["--nproc", str(self.ranks)]
        return ["--hosts", f"{self.hosts}:1"] + (["--rate", self.rate] if self.rate else [])


PLACES = [Place(1, 2), Place(1, 4)] + [Place(hosts, hosts, rate) for hosts in (2, 4) for rate in LINKS]


class Runner:
    """Runs `lockstep bench`, and collects its results and its remarks about missing engines."""

    def __init__(self, arguments, folder):
        self.lockstep, self.quick, self.folder = arguments.lockstep, arguments.quick, folder
        self.remarks = []

    def rows(self, name, arguments):
        path = os.path.join(self.folder, name + ".json")
        if not os.path.exists(path):
            start = time.monotonic()
            done = subprocess.run([self.lockstep, "bench"] + arguments + ["--json", path], text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if done.returncode != 0:
                sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
            for line in done.stderr.splitlines():
                if line.startswith("# ") and line[2:] not in self.remarks:
                    self.remarks.append(line[2:])
            print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        with open(path) as file:
            rows = json.load(file)
        for row in rows:
            if "missing" in row and row["missing"] not in self.remarks:
                self.remarks.append(row["missing"])
        return [row for row in rows if "missing" not in row]

    def all_reduce(self, place):
        def measure(part, sizes, rounds, *more):
            memory = "both" if place.hosts == 1 else "private"
            rounds = 1 if self.quick else rounds
            return self.rows(f"all_reduce-{place.key()}-{part}",
                             ["all_reduce", "--bytes", sizes, "--step", "8", "--memory", memory, "--rounds", str(rounds)]
                             + place.options() + [word for peer in PEERS for word in ("--peer", peer)] + list(more))
        if self.quick:
            return measure("quick", "8:256K", 1, "--iterations", "5")
        # Fewer operations than by default: Gloo may take a time slice for each, and a shaped link hardly varies.
        few = "2" if place.rate else "5"
        return (measure("small", "8:256K", 5, "--iterations", "60")
                + measure("large", "2M:64M", 3, "--iterations", few))

    def ddp(self, place, model):
        rounds, steps = (1, 1) if self.quick else (3, 2) if place.rate == "1gbit" else (5, 3)
        return self.rows(f"ddp-{place.key()}-{model}",
                         ["ddp", "--model", model, "--batch", str(MODELS[model]), "--rounds", str(rounds), "--steps", str(steps)]
                         + place.options() + [word for name in ["lockstep"] + PEERS for word in ("--backend", name)])


def bytes_text(count):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def time_text(microseconds):
    return f"{microseconds / 1e3:.3g} ms" if microseconds >= 1e3 else f"{microseconds:.3g} us"


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ratio_text(row, peer):
    if peer not in row.get("ratio", {}):
        return "-"
    spread, ratio = row["ratio_spread"][peer], row["ratio"][peer]
    text = number(ratio)
    return (f"**{text}**" if ratio < LOSS else text) + f" ({number(spread['low'])}-{number(spread['high'])})"


def table(head, lines):
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head)] + lines) + "\n"


class Page:
    """Collects the tables, the cases where Lockstep is slower, and the fastest engine of each setting."""

    def __init__(self, runner):
        self.runner = runner
        self.text = ""
        self.losses = []
        self.best = []  # one line per place

    def winner(self, ratios):
        """The fastest engine, given how many times faster Lockstep is than each peer."""
        least = min(ratios.values(), default=1)
        if least >= LOSS:
            return "Lockstep"
        return NAMES[min(ratios, key=ratios.get)]

    def note_losses(self, where, row):
        self.losses += [f"{where}: {ratio:.2f} x {NAMES[peer]}" for peer, ratio in row.get("ratio", {}).items()
                        if peer in PEERS and ratio < LOSS]

    def add_all_reduce(self, place):
        rows = self.runner.all_reduce(place)
        ours = [row for row in rows if row["engine"] == "lockstep"]
        both = place.hosts == 1
        lines = []
        for row in ours:
            size = bytes_text(row["bytes"])
            lines.append([size] + ([row["memory"]] if both else []) + [time_text(row["p50_us"])]
                         + [ratio_text(row, peer) for peer in PEERS])
            self.note_losses(f"all_reduce, {place.title()}, {size}" + (f", {row['memory']}" if both else ""), row)
        head = ["bytes"] + (["memory"] if both else []) + ["Lockstep"] + ["speedup vs " + NAMES[peer] for peer in PEERS]
        self.text += f"#### all_reduce: {place.title()}\n\n" + table(head, lines)
        fastest = []
        for least, most in ((0, 4 << 10), (4 << 10, 256 << 10), (256 << 10, 1 << 40)):
            found = {self.winner({peer: row["ratio"][peer] for peer in PEERS if peer in row["ratio"]})
                     for row in ours if least < row["bytes"] <= most}
            fastest.append(", ".join(sorted(found, key=list(NAMES.values()).index)) or "-")
        return fastest

    def add_ddp(self, place):
        lines, fastest = [], []
        for model in MODELS:
            rows = {row["engine"]: row for row in self.runner.ddp(place, model)}
            mine = rows["lockstep"]
            overhead = f"{1 + mine['overhead']:.2f}"
            lines.append([model, f"{mine['forward_backward_ms']:.1f} ms", overhead]
                         + [ratio_text(mine, peer) for peer in PEERS])
            self.note_losses(f"DDP, {place.title()}, {model}", mine)
            fastest.append(self.winner({peer: mine["ratio"][peer] for peer in PEERS if peer in mine["ratio"]}))
        self.text += f"#### DDP step: {place.title()}\n\n" + table(
            ["model", "Lockstep", "time / plain"] + ["speedup vs " + NAMES[peer] for peer in PEERS], lines)
        return fastest

    def add(self, place):
        fastest = self.add_all_reduce(place)
        ddp = self.add_ddp(place) if place.hosts > 1 or place.ranks == 2 else ["-"] * len(MODELS)
        self.best.append([place.title()] + fastest + ddp)

    def markdown(self):
        head = ["", "all_reduce to 4 KiB", "to 256 KiB", "to 64 MiB"] + ["DDP " + model for model in MODELS]
        lost = "".join(f"- {loss}\n" for loss in self.losses) or "- none\n"
        missing = "".join(f"- {remark}\n" for remark in self.runner.remarks)
        return (f"Measured on {machine()}, {time.strftime('%Y-%m-%d')}.\n\n"
                "### The fastest engine\n\n" + table(head, self.best)
                + f"### Cases where Lockstep is slower (ratio below {LOSS})\n\n{lost}\n"
                + (f"### Remarks\n\n{missing}\n" if missing else "") + "### All results\n\n" + self.text)


def machine():
    with open("/proc/cpuinfo") as info:
        name = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), platform.machine())
    return f"{name}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"


def write_between_markers(path, text):
    with open(path) as file:
        page = file.read()
    begin, end = (page.find(marker) for marker in MARKERS)
    if begin < 0 or end < begin:
        sys.exit(f"{path} lacks the lines {MARKERS[0].strip()} and {MARKERS[1].strip()}")
    with open(path, "w") as file:
        file.write(page[: begin + len(MARKERS[0])] + "\n" + text + page[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/release/bin/lockstep", help="the program to measure")
    parser.add_argument("--write", metavar="PAGE", help="write the tables between the markers of this page")
    parser.add_argument("--only", default="", help="a comma-separated subset of " + ",".join(place.key() for place in PLACES))
    parser.add_argument("--quick", action="store_true", help="run one short round of everything")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the JSON of each run there")
    arguments = parser.parse_args()
    if not os.access(arguments.lockstep, os.X_OK):
        sys.exit(f"{arguments.lockstep} does not exist: build it with cmake --preset release, or name another with --lockstep")
    wanted = [place for place in PLACES if not arguments.only or place.key() in arguments.only.split(",")]
    if os.geteuid() != 0 and any(place.hosts > 1 for place in wanted):
        sys.exit("network namespaces need root: run it with sudo, or with --only one-host")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
        page = Page(Runner(arguments, arguments.keep or folder))
        for place in wanted:
            page.add(place)
    if arguments.write:
        write_between_markers(arguments.write, page.markdown())
    else:
        print(page.markdown(), end="")


main()
