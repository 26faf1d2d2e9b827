#!/usr/bin/env python3
"""Weakens every fence and every ordering of crates/signal, one at a time, and has loom look for the fault.

    scripts/mutants.py [NAME...]         run the mutants: all, or those whose names begin so ("cork", "cork (A)")
    scripts/mutants.py --list            print where the orderings are, and their mutants
    scripts/mutants.py --markdown        print the table of docs/memory-ordering.md; runs all that changed
    scripts/mutants.py --check DOCUMENT  see that a document names every mutant, and none that does not exist
    scripts/mutants.py --self-test       check the parser

One line a mutant: `caught: NAME: what loom saw`, `SURVIVED: NAME`, or `exempt: NAME: reason`. Status 1 if one survives,
if there are fewer than 14, or if an exemption is not needed; 2 if the source or the call is at fault.

A mutant that survives says that the ordering is stronger than needed, or that no model looks. Each site bears a comment
`// (A), pairs with (B)` on its line or just above, and its mutants are named by file and letter: `cork (A) no fence`.
The crate is built once: in a copy of it each site asks at run time how it shall be ordered.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

# No __pycache__ beside the scripts.
sys.dont_write_bytecode = True

from boundaries import blank, code_only, without_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = pathlib.Path("crates/signal")
TARGET = ROOT / "target" / "loom"
SCRATCH = TARGET / "mutants"
# Not TARGET: cargo takes the copy and the original for the same crate.
BUILD = SCRATCH / "target"
VERDICTS = TARGET / "mutants.json"

# Mutants that loom cannot see by its own rules: name -> (why not, which other check kills it).
EXEMPT = {}

FEWEST = 14
PROCESSES = 2
# A model may take this many times as long as without a mutant, and at least so many seconds.
SLOWER, PATIENCE_S = 10, 60

NAMED_ORDER = re.compile(r"(?:\b\w+\s*::\s*)*\bOrdering\s*::\s*(Acquire|Release|AcqRel|SeqCst)\b")
UNNAMED_ORDER = re.compile(
    r"(?<![\w:])(?:Acquire|Release|AcqRel|SeqCst)\b|\bOrdering\s*::\s*[{*]|\bOrdering\s+as\b"
    r"|(?<!Ordering)::(?:AcqRel|SeqCst)\b|=\s*(?:\w+\s*::\s*)*Ordering\s*;|<\s*(?:\w+\s*::\s*)*Ordering\s*>\s*::"
)
MODULE = re.compile(r"((?:#\[[^\]]*\]\s*)+)(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
CALLEE = re.compile(r"((?:\b\w+\s*::\s*)*)\b(\w+)\s*$")
LETTER = re.compile(r"\(([A-Z]\w*)\), pairs with (.+)")
PARTNER = re.compile(r"\(([A-Z]\w*)\)(?: in `?(?:\w+/)*(\w+)(?:\.rs)?`?)?")
LEFT_ALONE = re.compile(r"\b(?:wak|woke|sleep|slept|lost|lies|waits?|nobody|kick|window|for ever)", re.IGNORECASE)
MUTANT_NAME = re.compile(r"`([\w:]+ \([A-Z]\w*(?:\.\d+)?\) (?:no fence|Relaxed|Acquire|Release|AcqRel))`")

OPERATIONS = {"compare_exchange": "compare-and-swap", "compare_exchange_weak": "compare-and-swap"}
# The argument that orders a failed exchange.
ON_FAILURE = {"compare_exchange": 3, "compare_exchange_weak": 3, "fetch_update": 1}


class SourceError(Exception):
    """What is wrong with the source, one line each."""


@dataclass
class Site:
    file: str
    line: int
    start: int
    end: int
    operation: str
    order: str
    letter: str
    pairs: str
    number: int = 0

    @property
    def edge(self):
        parts = pathlib.PurePath(self.file).with_suffix("").parts
        return "::".join(parts[:-1] if len(parts) > 1 and parts[-1] == "mod" else parts)

    @property
    def name(self):
        return f"{self.edge} ({self.letter}{f'.{self.number}' if self.number else ''})"

    @property
    def ordered(self):
        return f"fence({self.order})" if self.operation == "fence" else f"{self.operation} {self.order}"

    @property
    def weaker(self):
        """What may stand here instead; None is no fence at all."""
        if self.operation == "fence":
            return {"SeqCst": [None, "AcqRel"], "AcqRel": [None, "Acquire", "Release"]}.get(self.order, [None])
        return ["Acquire", "Release"] if self.order == "AcqRel" else ["Relaxed"]


@dataclass
class Mutant:
    site: int
    name: str
    order: str | None
    verdict: str = ""
    said: str = ""


@dataclass
class Model:
    """One test, as it runs without a mutant."""

    name: str
    seconds: float = 0.0
    reaches: set = field(default_factory=set)


# The source


def not_shipped(lib):
    """The modules that lib.rs has for tests only, loom's models among them."""
    return {name for attributes, name in MODULE.findall(code_only(lib)) if re.search(r"cfg\((?:all\()?\s*test\b", attributes)}


def is_shipped(name, tests):
    # `mod model` of sync.rs stands in for other crates' types, with their orders.
    return pathlib.PurePath(name).with_suffix("").parts[0] not in tests and name != "sync/model.rs"


def comment_of(line, code):
    """The `//` comment that ends a line, without its slashes; None for documentation."""
    at = line.find("//")
    while at >= 0 and code[at:].strip():
        at = line.find("//", at + 1)
    return None if at < 0 or line[at + 2 : at + 3] in ("/", "!") else line[at + 2 :].strip()


def enclosing_call(code, at):
    """Where the parenthesis around `at` opens, where it closes, and how many arguments stand before `at`."""
    depth, argument = 0, 0
    for opens in range(at - 1, -1, -1):
        char = code[opens]
        if char in ")]}":
            depth += 1
        elif char in "([{":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            argument += 1
        elif char == ";" and depth == 0:
            return None
    else:
        return None
    if code[opens] != "(":
        return None
    depth, closes = 0, opens
    for closes in range(opens, len(code)):
        depth += {"(": 1, ")": -1}.get(code[closes], 0)
        if depth == 0:
            break
    return opens, closes, argument


def lettered(lines, codes, first, at, last):
    """The letter comment of what begins in line `first` and is ordered in line `at`: the nearest one."""
    above = first
    while above > 0 and not codes[above - 1].strip() and comment_of(lines[above - 1], codes[above - 1]) is not None:
        above -= 1
    for number in [*range(at, above - 1, -1), *range(at + 1, last + 1)]:
        found = LETTER.search(comment_of(lines[number], codes[number]) or "")
        if found:
            return found[1], re.split(r"\.(?:\s|$)", found[2])[0].strip()
    return None


def sites_of(name, source):
    """The sites of one file, and what is wrong with it."""
    code = without_tests(code_only(source))
    if name == "sync.rs" and (model := re.search(r"\bmod model\s*\{", code)):
        depth = 0
        for end in range(model.end() - 1, len(code)):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            if depth == 0:
                break
        code = code[: model.start()] + blank(code[model.start() : end + 1]) + code[end + 1 :]
    # Comments are found beside the code, tests blanked or not.
    lines, codes = source.split("\n"), code_only(source).split("\n")
    line_of = lambda at: source.count("\n", 0, at)
    sites, wrong = [], []
    for bare in UNNAMED_ORDER.finditer(code):
        wrong.append(f"{name}:{line_of(bare.start()) + 1}: write the order as Ordering::X, so that it can be found")
    for found in NAMED_ORDER.finditer(code):
        order, start, end = found[1], found.start(), found.end()
        operation, first, last = "order", start, line_of(end)
        if call := enclosing_call(code, start):
            opens, closes, argument = call
            first, last = opens, line_of(closes)
            if callee := CALLEE.search(code, 0, opens):
                operation = OPERATIONS.get(callee[2], callee[2].replace("_", "-"))
                first = callee.start()
                if callee[2] == "fence":
                    start, end = callee.start(), closes + 1
                elif argument == ON_FAILURE.get(callee[2]):
                    operation = f"failed {operation}"
        at = line_of(found.start())
        if order == "SeqCst" and operation != "fence":
            wrong.append(f"{name}:{at + 1}: SeqCst in a {operation}: use a weaker order, and fence(SeqCst) where store buffering must be excluded")
            continue
        # Where the statement begins.
        statement = max(code.rfind(char, 0, first) for char in ";{}") + 1
        statement += len(code[statement:]) - len(code[statement:].lstrip())
        letter = lettered(lines, codes, min(line_of(statement), at), at, last)
        if letter is None:
            wrong.append(f"{name}:{at + 1}: {operation} {order} without its comment `// (A), pairs with (B)`")
            continue
        sites.append(Site(name, at + 1, start, end, operation, order, *letter))
    for site in sites:
        same = [other for other in sites if other.letter == site.letter]
        if len(same) > 1:
            site.number = next(at for at, other in enumerate(same, 1) if other is site)
    return sites, wrong


def read_sources(root):
    """All shipped files of the crate, by their names below src."""
    src = root / CRATE / "src"
    names = sorted(path.relative_to(src).as_posix() for path in src.rglob("*.rs"))
    tests = not_shipped((src / "lib.rs").read_text())
    return {name: (src / name).read_text() for name in names if is_shipped(name, tests)}


def find_sites(sources):
    sites, wrong, letters = [], [], {}
    for name, source in sources.items():
        found, faults = sites_of(name, source)
        sites += found
        wrong += faults
        letters.setdefault(pathlib.PurePath(name).stem, set()).update(letter for letter, _ in LETTER.findall(source))
    for site in sites:
        # What is not lettered, such as the kernel's side, is taken as it is.
        if partner := PARTNER.match(site.pairs):
            file = partner[2] or pathlib.PurePath(site.file).stem
            if partner[1] not in letters.get(file, set()):
                wrong.append(f"{site.file}:{site.line}: ({site.letter}) pairs with ({partner[1]}), and {file}.rs has no such letter")
    if wrong:
        raise SourceError("\n".join(wrong))
    return sites


def mutants_of(sites):
    return [
        Mutant(number, f"{site.name} {order or 'no fence'}", order)
        for number, site in enumerate(sites)
        for order in site.weaker
    ]


# The copy in which every site can be weakened


def weakened(source, sites):
    """The source of one file, with its sites (and their numbers) asking; line numbers stay."""
    for number, site in sorted(sites, key=lambda numbered: -numbered[1].start):
        ask = "fence" if site.operation == "fence" else "order"
        lines = "\n" * source.count("\n", site.start, site.end)
        source = f"{source[: site.start]}crate::weakened::{ask}({number}{lines}){source[site.end :]}"
    return source


def asked_module(sites):
    written = ", ".join(f"Ordering::{site.order}" for site in sites)
    return f"""//! Generated: says how each site is ordered. `XSEND_MUTANT=SITE:ORDER` weakens one.
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{{AtomicBool, Ordering}};

const WRITTEN: [Ordering; {len(sites)}] = [{written}];
static REACHED: [AtomicBool; {len(sites)}] = [const {{ AtomicBool::new(false) }}; {len(sites)}];
static CHOSEN: OnceLock<Option<(usize, Option<Ordering>)>> = OnceLock::new();

fn at(site: usize) -> Option<Ordering> {{
    let chosen = CHOSEN.get_or_init(|| {{
        let chosen = std::env::var("XSEND_MUTANT").ok()?;
        let (site, order) = chosen.split_once(':').expect("SITE:ORDER");
        let order = match order {{
            "none" => None,
            "Relaxed" => Some(Ordering::Relaxed),
            "Acquire" => Some(Ordering::Acquire),
            "Release" => Some(Ordering::Release),
            "AcqRel" => Some(Ordering::AcqRel),
            other => panic!("no order {{other}}"),
        }};
        Some((site.parse().expect("a number"), order))
    }});
    match *chosen {{
        None => {{
            if !REACHED[site].swap(true, Ordering::Relaxed) {{
                let _ = std::io::stderr().write_all(format!("\\nreached site {{site}}\\n").as_bytes());
            }}
            Some(WRITTEN[site])
        }}
        Some((mutant, order)) if mutant == site => order,
        Some(_) => Some(WRITTEN[site]),
    }}
}}

pub(crate) fn order(site: usize) -> Ordering {{
    at(site).expect("an access has an order")
}}

pub(crate) fn fence(site: usize) {{
    if let Some(order) = at(site) {{
        crate::sync::fence(order);
    }}
}}
"""


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_scratch(sources, sites):
    """A workspace of this one crate, with our dependencies, profiles and versions."""
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest, replaced = re.subn(r"(?m)^members\s*=\s*\[[^\]]*\]", f'members = ["{CRATE}"]', manifest)
    if replaced != 1:
        raise SourceError("Cargo.toml: no `members = [...]`")
    files = {SCRATCH / "Cargo.toml": manifest}
    for path in (ROOT / CRATE).rglob("*"):
        if path.is_file() and path.suffix in (".rs", ".toml"):
            files[SCRATCH / path.relative_to(ROOT)] = path.read_text()
    src = SCRATCH / CRATE / "src"
    for name, source in sources.items():
        here = [(number, site) for number, site in enumerate(sites) if site.file == name]
        files[src / name] = weakened(source, here) + ("\nmod weakened;\n" if name == "lib.rs" else "")
    files[src / "weakened.rs"] = asked_module(sites)
    for path, text in files.items():
        write_if_changed(path, text)
    for path in (SCRATCH / CRATE).rglob("*"):
        if path.is_file() and path not in files:
            path.unlink()
    # Cargo takes out of it what this one crate does not need.
    (SCRATCH / "Cargo.lock").write_text((ROOT / "Cargo.lock").read_text())


def environment(**more):
    """Ours, without what would make loom stop early."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_") and name != "XSEND_MUTANT"}
    profile = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
    return {**env, **profile, "RUSTFLAGS": "--cfg loom", "RUST_BACKTRACE": "0", "XSEND_LOOM": "quick", **more}


def build():
    """The test program of the copy."""
    command = ["cargo", "test", "-p", "xsend-signal", "--release", "--lib", "--no-run", "--message-format", "json-render-diagnostics", "--target-dir", BUILD]
    built = subprocess.run(command, cwd=SCRATCH, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        raise SourceError(f"the weakened copy in {SCRATCH} does not build:\n{built.stderr}")
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    programs = [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]]
    if len(programs) != 1:
        raise SourceError(f"cargo built {len(programs)} test programs instead of one")
    return programs[0]


# Running


def run_model(program, name, seconds, **env):
    """Status (None: did not end in time) and all that was said."""
    command = [program, "--exact", name, "--nocapture", "--test-threads=1"]
    try:
        ran = subprocess.run(command, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    return ran.returncode, ran.stdout.decode(errors="replace")


# How a model ended. What merely hints is taken if no other model says more.
CAUGHT, HINTS, NOTHING = range(3)


def what_loom_saw(status, output):
    """The first complaint in plain words, and whether it is loom's finding."""
    found = re.search(r"panicked at ([^\n]*)\n(.*?)(?=\nnote: |\nstack backtrace|\n\n|\nthread |\Z)", output, re.DOTALL)
    if not found:
        crashed = status < 0 and signal.Signals(-status).name
        if crashed in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGTRAP"):
            return f"stale read: memory was overwritten, {crashed}", CAUGHT
        return f"it ended with {crashed or f'status {status}'}", NOTHING
    said = " ".join(found[2].split())
    if "exceeded maximum number of branches" in said:
        return "stale read: a thread goes round for ever, waiting for what it never sees", HINTS
    if said.startswith("deadlock"):
        return "lost wake-up: a thread sleeps for ever (deadlock)", CAUGHT
    if said.startswith("Causality violation"):
        return f"data race: {said.removeprefix('Causality violation: ').rstrip('.')}", CAUGHT
    if "/loom-" in found[1] and "leaked" not in said:
        # An assertion about loom's own state says nothing about ours.
        return f"loom broke down: {said}", NOTHING
    if values := re.search(r"^assertion `left (==|!=) right` failed(?:: (.*?))? left: (.*) right: (.*)$", said):
        compared = f"{values[3]} instead of {values[4]}" if values[1] == "==" else f"both are {values[3]}"
        said = f"{values[2]} ({compared})" if values[2] else compared
    elif held := re.match(r"assertion failed: (.*)", said):
        said = f"not {held[1]}"
    # Weaker orders do nothing but let loads return older values, so whatever does not hold comes from one.
    if re.match(r"torn\b", said):
        return f"torn word{said.removeprefix('torn').removeprefix(' word')}", CAUGHT
    if re.match("lost wake-up|stale read", said):
        return said, CAUGHT
    return f"{'lost wake-up' if LEFT_ALONE.search(said) else 'stale read'}: {said}", CAUGHT


def list_models(program):
    def listed(*more):
        out = subprocess.run([program, "loom_models::", "--list", *more], env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
        return [line.removesuffix(": test") for line in out.splitlines() if line.endswith(": test")]

    ignored = set(listed("--ignored"))
    return [Model(name) for name in listed() if name not in ignored]


def run_unweakened(program, model):
    began = time.monotonic()
    status, output = run_model(program, model.name, 600)
    model.seconds = time.monotonic() - began
    model.reaches = {int(site) for site in re.findall(r"^reached site (\d+)$", output, re.MULTILINE)}
    return status, output


def run_mutant(program, models, site, mutant):
    """Models named like the file first, then all others that reach the site, the quick ones first."""
    reaching = [model for model in models if mutant.site in model.reaches]
    own = site.edge.split("::")[-1]
    reaching.sort(key=lambda model: (own not in model.name.split("::"), model.seconds))
    hints, nothing = [], []
    for model in reaching:
        seconds = max(PATIENCE_S, SLOWER * model.seconds)
        status, output = run_model(program, model.name, seconds, XSEND_MUTANT=f"{mutant.site}:{mutant.order or 'none'}")
        if status == 0:
            continue
        saw, finding = what_loom_saw(status, output) if status is not None else (f"no end in {seconds:.0f} s", NOTHING)
        saw = f"{saw} [{model.name.removeprefix('loom_models::')}]"
        if finding == CAUGHT:
            mutant.verdict, mutant.said = "caught", saw
            return
        (hints if finding == HINTS else nothing).append(saw)
    if hints:
        mutant.verdict, mutant.said = "caught", hints[0]
    else:
        mutant.verdict = "SURVIVED"
        passed = f"{len(reaching) - len(nothing)} models pass" if reaching else "no model comes here"
        mutant.said = "; ".join([passed, *nothing])


def judged(mutant, exemptions=EXEMPT):
    """The line to print, and whether all is well."""
    exempt = exemptions.get(mutant.name)
    if exempt and mutant.verdict == "caught":
        return f"CAUGHT THOUGH EXEMPT: {mutant.name}: {mutant.said}", False
    if exempt:
        return f"exempt: {mutant.name}: {exempt[0]}; {exempt[1]}", True
    return f"{mutant.verdict}: {mutant.name}: {mutant.said}", mutant.verdict == "caught"


def faults_of_all(mutants, exemptions=EXEMPT):
    """What is wrong with the mutants as a whole."""
    for name in sorted(exemptions.keys() - {mutant.name for mutant in mutants}):
        yield f"EXEMPT, AND DOES NOT EXIST: {name}"
    if len(mutants) < FEWEST:
        yield f"TOO FEW: {len(mutants)} mutants, and {FEWEST} are the least"


def wanted(mutants, names):
    for name in names:
        if not any(mutant.name == name or mutant.name.startswith(f"{name} ") for mutant in mutants):
            raise SourceError(f"no mutant is called {name}: see --list")
    return [
        mutant
        for mutant in mutants
        if not names or any(mutant.name == name or mutant.name.startswith(f"{name} ") for name in names)
    ]


def source_hash():
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for path in sorted((ROOT / CRATE).rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run(names, line=print):
    """Runs mutants, a line each, and returns them and whether all is well."""
    note = lambda text: print(text, file=sys.stderr, flush=True)
    sources = read_sources(ROOT)
    sites = find_sites(sources)
    mutants = mutants_of(sites)
    chosen = wanted(mutants, names)
    began, hashed = time.monotonic(), source_hash()
    note(f"{len(sites)} sites, {len(chosen)} of {len(mutants)} mutants; building")
    write_scratch(sources, sites)
    program = build()
    well = True
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        models = list_models(program)
        note(f"built in {time.monotonic() - began:.0f} s; {len(models)} models without a mutant")
        for model, (status, output) in zip(models, pool.map(lambda model: run_unweakened(program, model), models)):
            if status != 0:
                saw = "did not end in 600 s" if status is None else what_loom_saw(status, output)[0]
                raise SourceError(f"{model.name} fails without a mutant: {saw}")
        if not any(model.reaches for model in models):
            raise SourceError("no model comes to any site: is there a module loom_models?")

        def one(mutant):
            run_mutant(program, models, sites[mutant.site], mutant)
            return judged(mutant)

        for text, good in pool.map(one, chosen):
            line(text)
            sys.stdout.flush()
            well = well and good
    if not names:
        for fault in faults_of_all(mutants):
            line(fault)
            well = False
        VERDICTS.write_text(json.dumps({"source": hashed, "verdicts": {m.name: [m.verdict, m.said] for m in mutants}, "well": well}))
    verdicts = [mutant.verdict for mutant in chosen]
    note(f"{verdicts.count('caught')} caught, {verdicts.count('SURVIVED')} not, in {time.monotonic() - began:.0f} s")
    return sites, chosen, well


# What is printed


def print_sites(sites):
    for number, site in enumerate(sites):
        names = ", ".join(order or "no fence" for order in site.weaker)
        print(f"{CRATE}/src/{site.file}:{site.line}: {site.name}: {site.ordered}, pairs with {site.pairs}; mutants: {names}")
    print(f"{len(sites)} sites, {len(mutants_of(sites))} mutants", file=sys.stderr)


def print_markdown():
    """From the last run, if nothing has changed since."""
    sites = find_sites(read_sources(ROOT))
    mutants = mutants_of(sites)
    try:
        last = json.loads(VERDICTS.read_text())
    except (OSError, ValueError):
        last = {}
    if last.get("source") == source_hash():
        well = last["well"]
        for mutant in mutants:
            mutant.verdict, mutant.said = last["verdicts"][mutant.name]
    else:
        sites, mutants, well = run([], line=lambda text: print(text, file=sys.stderr))
    print("| site | order | pairs with | mutant | verdict |\n|---|---|---|---|---|")
    for mutant in mutants:
        site = sites[mutant.site]
        verdict = judged(mutant)[0].replace(f": {mutant.name}", "", 1).replace("|", "\\|")
        print(f"| `{site.file}` ({site.letter}) | {site.ordered} | {site.pairs} | `{mutant.name}` | {verdict} |")
    return well


def document_faults(mutants, text):
    exist, named = {mutant.name for mutant in mutants}, set(MUTANT_NAME.findall(text))
    yield from (f"does not name the mutant `{name}`" for name in sorted(exist - named))
    yield from (f"names the mutant `{name}`, which does not exist" for name in sorted(named - exist))


def self_test():
    source = '''
use crate::sync::{Ordering, fence};
fn a(x: &AtomicU32) {
    x.store(1, Ordering::Relaxed);
    sync::fence(sync::Ordering::SeqCst); // (A), pairs with (B)
    let y = "Ordering::Release // (Z), pairs with (Z)"; // Ordering::Acquire
    // (C), pairs with (D). Whoever fails has
    // nothing to acquire.
    match x.compare_exchange(
        f(1, 2),
        3,
        Ordering::AcqRel,
        Ordering::Acquire, // (D), pairs with (C)
    ) {
        Ok(_) => fence(Ordering::Acquire), // (B), pairs with (A)
        Err(_) => {
            x.load(Ordering::Acquire) // (D), pairs with the kernel's
        }
    }
    // (C), pairs with (D)
    let z =
        x.fetch_or(1, Ordering::Release);
}
#[cfg(test)]
mod tests { fn t() { fence(Ordering::SeqCst); } }
'''
    sites, wrong = sites_of("cork.rs", source)
    assert not wrong, wrong
    assert [(site.name, site.ordered, site.pairs, site.line) for site in sites] == [
        ("cork (A)", "fence(SeqCst)", "(B)", 5),
        ("cork (C.1)", "compare-and-swap AcqRel", "(D)", 12),
        ("cork (D.1)", "failed compare-and-swap Acquire", "(C)", 13),
        ("cork (B)", "fence(Acquire)", "(A)", 15),
        ("cork (D.2)", "load Acquire", "the kernel's", 17),
        ("cork (C.2)", "fetch-or Release", "(D)", 22),
    ], sites
    assert [mutant.name for mutant in mutants_of(sites)] == [
        "cork (A) no fence", "cork (A) AcqRel", "cork (C.1) Acquire", "cork (C.1) Release", "cork (D.1) Relaxed",
        "cork (B) no fence", "cork (D.2) Relaxed", "cork (C.2) Relaxed",
    ]
    copy = weakened(source, list(enumerate(sites)))
    assert copy.count("\n") == source.count("\n") and copy.count("crate::weakened::") == 6, copy
    for replaced in ("    crate::weakened::fence(0); //", "crate::weakened::order(1),\n", "=> crate::weakened::fence(3), //", "load(crate::weakened::order(4))"):
        assert replaced in copy, copy
    assert "mod tests { fn t() { fence(Ordering::SeqCst); } }" in copy, copy

    # The letter of the statement before does not count, nor one in the documentation.
    for unlettered in (
        "/// (A), pairs with (B)\nfn f() { x.load(Ordering::Acquire); }",
        "fn f() {\n    fence(Ordering::Relaxed); // (A), pairs with (B)\n    fence(Ordering::SeqCst);\n}",
        "fn f() {\n    // (A), pairs with (B)\n    g();\n    fence(Ordering::SeqCst);\n}",
    ):
        sites, wrong = sites_of("cork.rs", unlettered)
        assert not sites and len(wrong) == 1 and "without its comment" in wrong[0], (unlettered, sites, wrong)
    for faulty, fault in (
        ("x.load(Ordering::SeqCst); // (A), pairs with (B)", "SeqCst in a load"),
        ("compiler_fence(Ordering::SeqCst); // (A), pairs with (B)", "SeqCst in a compiler-fence"),
        ("x.load(Acquire); // (A), pairs with (B)", "write the order"),
        ("use std::sync::atomic::Ordering::*;", "write the order"),
        ("type O = Ordering;", "write the order"),
        ("x.load(O::SeqCst); // (A), pairs with (B)", "write the order"),
        ("fn f() { x.load(<Ordering>::Acquire) } // (A), pairs with (B)", "write the order"),
    ):
        wrong = sites_of("cork.rs", faulty)[1]
        assert len(wrong) == 1 and fault in wrong[0], wrong
    assert not sites_of("cork.rs", "Completion::Release => Completion::ReleaseCorked, // Acquire")[1]

    stand_in = "mod real { fn f() { fence(Ordering::Release) } // (A), pairs with (B)\n}\nmod model { fn f() { fence(Ordering::SeqCst) } }\n"
    sites, wrong = sites_of("sync.rs", stand_in)
    assert [site.name for site in sites] == ["sync (A)"] and not wrong, (sites, wrong)
    tests = not_shipped("mod wait;\npub mod cork;\n#[cfg(test)]\n#[cfg(loom)]\nmod loom_models;\n#[cfg(all(test, loom))]\npub(crate) mod oracle;\n#[cfg(loom)]\nmod model;\n")
    assert tests == {"loom_models", "oracle"}, tests
    files = ("cork.rs", "oracle.rs", "loom_models.rs", "loom_models/cork.rs", "sync/model.rs", "life/oracle.rs")
    assert [name for name in files if is_shipped(name, tests)] == ["cork.rs", "life/oracle.rs"]

    pair = "fence(Ordering::SeqCst); // (A), pairs with "
    for pairs, sound in (("(A)", True), ("(B)", False), ("(B) in `wait.rs`", True), ("(C) in wait.rs", False), ("the kernel's", True)):
        try:
            find_sites({"cork.rs": pair + pairs, "wait.rs": "fence(Ordering::SeqCst); // (B), pairs with (A) in cork.rs"})
            assert sound, pairs
        except SourceError:
            assert not sound, pairs

    mutants = [Mutant(0, "cork (A) no fence", None), Mutant(1, "spsc (B.2) Relaxed", "Relaxed")]
    faults = list(document_faults(mutants, "| `cork (A) no fence` | and `tail (A) Relaxed`, (B) |"))
    assert len(faults) == 2 and "spsc (B.2) Relaxed" in faults[0] and "tail (A) Relaxed" in faults[1], faults
    assert [mutant.name for mutant in wanted(mutants, ["spsc"])] == ["spsc (B.2) Relaxed"]

    few = list(faults_of_all(mutants, {"spsc (B.2) Relaxed": ("", ""), "spsc (Z) Relaxed": ("", "")}))
    assert len(few) == 2 and few[0].endswith("EXIST: spsc (Z) Relaxed") and few[1].startswith("TOO FEW: 2"), few
    exempt = {"tail (A) Relaxed": ("loom is blind", "a stress test kills it")}
    for name, verdict, text, good in (
        ("tail (A) Relaxed", "SURVIVED", "exempt: tail (A) Relaxed: loom is blind; a stress test kills it", True),
        ("tail (A) Relaxed", "caught", "CAUGHT THOUGH EXEMPT: tail (A) Relaxed: torn word", False),
        ("tail (C) Relaxed", "SURVIVED", "SURVIVED: tail (C) Relaxed: torn word", False),
        ("tail (C) Relaxed", "caught", "caught: tail (C) Relaxed: torn word", True),
    ):
        assert judged(Mutant(0, name, "Relaxed", verdict, "torn word"), exempt) == (text, good)

    panicked = "reached site 1\n\nthread 'a' (12) panicked at src/a.rs:1:2:\n{}\nnote: run with `RUST_BACKTRACE=1`\n"
    for said, saw in (
        ("assertion `left == right` failed: lost wake-up\n  left: Quiet\n right: ReleaseCorked", "lost wake-up (Quiet instead of ReleaseCorked)"),
        ("assertion `left == right` failed: nobody rings\n  left: Quiet\n right: Rung", "lost wake-up: nobody rings (Quiet instead of Rung)"),
        ("assertion `left == right` failed\n  left: 1\n right: 2", "stale read: 1 instead of 2"),
        ("assertion `left != right` failed: early\n  left: 1\n right: 1", "stale read: early (both are 1)"),
        ("assertion failed: back <= 1", "stale read: not back <= 1"),
        ("deadlock; threads = [(Id(0), Blocked)]", "lost wake-up: a thread sleeps for ever (deadlock)"),
        ("Causality violation: Concurrent write accesses to `UnsafeCell`.", "data race: Concurrent write accesses to `UnsafeCell`"),
        ("torn", "torn word"),
    ):
        assert what_loom_saw(101, panicked.format(said)) == (saw, CAUGHT), what_loom_saw(101, panicked.format(said))
    assert what_loom_saw(101, panicked.format("Model exceeded maximum number of branches. This is"))[1] == HINTS
    broken = panicked.replace("src/a.rs", "/registry/loom-0.7.3/src/rt/atomic.rs")
    assert what_loom_saw(101, broken.format("assertion `left != right` failed\n  left: [1]\n right: [1]"))[1] == NOTHING
    assert what_loom_saw(101, broken.format("[loom internal bug] store = 9"))[1] == NOTHING
    assert what_loom_saw(101, broken.format("deadlock; threads = []"))[1] == CAUGHT
    assert what_loom_saw(101, broken.format("Arc leaked.\n  Index: 3")) == ("stale read: Arc leaked. Index: 3", CAUGHT)
    assert what_loom_saw(-11, "") == ("stale read: memory was overwritten, SIGSEGV", CAUGHT)
    assert what_loom_saw(-9, "") == ("it ended with SIGKILL", NOTHING)


def main():
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if arguments == ["--self-test"]:
        self_test()
        return 0
    try:
        if arguments == ["--list"]:
            print_sites(find_sites(read_sources(ROOT)))
            return 0
        if arguments == ["--markdown"]:
            return 0 if print_markdown() else 1
        if len(arguments) == 2 and arguments[0] == "--check":
            mutants = mutants_of(find_sites(read_sources(ROOT)))
            faults = [f"{arguments[1]}: {fault}" for fault in document_faults(mutants, pathlib.Path(arguments[1]).read_text())]
            faults += faults_of_all(mutants)
            for fault in faults:
                print(fault)
            return 1 if faults else 0
        if any(argument.startswith("-") for argument in arguments):
            print(f"cannot make sense of {' '.join(arguments)}; try --help", file=sys.stderr)
            return 2
        return 0 if run(arguments)[2] else 1
    except (SourceError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
