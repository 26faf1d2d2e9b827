#!/usr/bin/env python3
"""Checks that the crates know only whom they may know, and that `unsafe` and atomics stay where they belong.

    scripts/boundaries.py            check this workspace; status 1 and one line a finding otherwise
    scripts/boundaries.py --self-test    check the checker

The lists below are those of ARCHITECTURE.md.
"""

import json
import pathlib
import re
import subprocess
import sys

# Who may depend on whom (normal and build dependencies), by folder under crates/, or at the top.
MAY_KNOW = {
    "cli": {"xsend", "host"},
    "xsend": {"shard", "signal", "host", "steer", "xsk", "tcp", "wire"},
    "shard": {"tcp", "wire", "signal", "xsk"},
    "tcp": {"wire"},
    "wire": set(),
    "signal": set(),
    "xsk": {"signal"},
    "steer": {"xsk"},
    "host": {"wire"},
    "sim": {"tcp", "wire"},
    "testkit": set(),
    "benches": {"signal", "wire"},
}
# The package outside crates/.
AT_THE_TOP = {"benches"}
# Tests may use these as well.
TESTS_MAY_KNOW = {"testkit", "sim", "wire"}

# Crates from elsewhere that only these may use outside their tests.
RESERVED = {
    "clap": {"cli"},
    "xsk-rs": {"xsk"},
    "libxdp-sys": {"xsk"},
    "core_affinity": {"shard", "xsend"},
    "xsend-testkit": set(),
}
# No standard library, hence nothing from elsewhere either.
ALONE = {"tcp", "wire"}

MAY_BE_UNSAFE = ("crates/xsk/", "crates/signal/", "crates/packetdrill/", "crates/lab/", "crates/wire/src/simd.rs")
MAY_NAME_ATOMICS = ("crates/signal/", "crates/lab/")

# No lock on the data path: what a turn runs through names none. xsk numbers its UMEMs under one when they are made.
MAY_LOCK = ("crates/signal/src/sync.rs", "crates/signal/src/loom_models", "crates/xsk/src/umem.rs", "crates/xsend/src/sender.rs", "crates/cli/", "crates/testkit/", "crates/host/", "crates/sim/", "crates/steer/")
LOCKS = re.compile(r"\b(?:Mutex|RwLock|Condvar|OnceLock|LazyLock)\b")

UNSAFE = re.compile(r"\bunsafe\b")
ATOMICS = re.compile(r"\bsync\s*::\s*atomic\b|\bAtomic[A-Z]\w*|\b(?:compiler_)?fence\s*\(")
TEST_ONLY = re.compile(r"#\[cfg\((?:test\b|all\(\s*test\b)[^\]]*\]")

TOKEN = re.compile(
    r"""
      //[^\n]*                                            # line comment
    | b?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes)           # raw string
    | b?"(?:\\(?:.|\n)|[^"\\])*"                          # string
    | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])' # character, not a lifetime
    """,
    re.VERBOSE,
)


def blank(text):
    """The same number of lines, nothing on them."""
    return re.sub(r"[^\n]", " ", text)


def code_only(source):
    """Rust source with comments, strings and characters blanked out; line numbers stay."""
    out, at = [], 0
    while at < len(source):
        if source.startswith("/*", at):
            depth, end = 1, at + 2
            while end < len(source) and depth:
                if source.startswith("/*", end):
                    depth, end = depth + 1, end + 2
                elif source.startswith("*/", end):
                    depth, end = depth - 1, end + 2
                else:
                    end += 1
            out.append(blank(source[at:end]))
            at = end
            continue
        # A raw string or a byte string does not begin inside a name.
        inside_name = at > 0 and (source[at - 1].isalnum() or source[at - 1] == "_")
        token = TOKEN.match(source, at)
        if token and not (inside_name and source[at] in "br"):
            out.append(blank(token.group()))
            at = token.end()
        else:
            out.append(source[at])
            at += 1
    return "".join(out)


def without_tests(code):
    """Code whose `#[cfg(test)]` items are blanked out."""
    at = 0
    while found := TEST_ONLY.search(code, at):
        end, depth = found.end(), 0
        while end < len(code):
            char = code[end]
            end += 1
            if char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if depth == 0:
                    break
            elif char == ";" and depth == 0:
                break
        code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
        at = end
    return code


def is_test(path):
    """Whether a file is built for tests, benchmarks or fuzzing only."""
    parts = path.parts
    return bool({"tests", "benches", "fuzz"} & set(parts)) or path.name == "tests.rs"


def check_sources(root):
    for path in sorted(path for top in ("crates", *AT_THE_TOP) for path in (root / top).rglob("*.rs")):
        name = path.relative_to(root)
        if "target" in name.parts:
            continue
        code = code_only(path.read_text(encoding="utf-8"))
        # `forbid(unsafe_code)` is another word, and a test that is unsafe needs its crate's permission too.
        for what, pattern, allowed, text in (
            ("unsafe", UNSAFE, MAY_BE_UNSAFE, code),
            ("an atomic or a fence", ATOMICS, MAY_NAME_ATOMICS, "" if is_test(name) else without_tests(code)),
            ("a lock", LOCKS, MAY_LOCK, "" if is_test(name) else without_tests(code)),
        ):
            if str(name).startswith(allowed):
                continue
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{name}:{line}: {what} ({found.group().strip()}) does not belong here"


def place(folder):
    """Where a package of MAY_KNOW lies."""
    return folder if folder in AT_THE_TOP else f"crates/{folder}"


def check_dependencies(packages, root):
    folder_of = {}
    for package in packages:
        folder = pathlib.Path(package["manifest_path"]).parent.relative_to(root)
        folder_of[package["name"]] = folder.name if folder.parts[:1] == ("crates",) else str(folder)
    for package in packages:
        folder = folder_of[package["name"]]
        if folder not in MAY_KNOW:
            if pathlib.Path(package["manifest_path"]).parent.parent.name == "crates":
                yield f"crates/{folder}: not in the list of crates; add it to ARCHITECTURE.md and to {sys.argv[0]}"
            continue
        for dependency in package["dependencies"]:
            name, for_tests = dependency["name"], dependency["kind"] == "dev"
            known = folder_of.get(name)
            if known is not None:
                allowed = MAY_KNOW[folder] | (TESTS_MAY_KNOW if for_tests else set())
                if known not in allowed and known != folder:
                    yield f"{place(folder)}: may not depend on {known}"
            elif not for_tests and folder in ALONE:
                yield f"{place(folder)}: depends on {name}, and should depend on nothing from elsewhere"
            if not for_tests and folder not in RESERVED.get(name, {folder}):
                yield f"{place(folder)}: {name} is not for this crate"


def self_test():
    source = 'a /* unsafe /* x */ unsafe */ b // unsafe\n"unsafe \\" unsafe" r#"unsafe " "# \'"\' &\'a str \'\\u{1F}\' unsafe {'
    code = code_only(source)
    assert len(UNSAFE.findall(code)) == 1, code
    assert code.count("\n") == 1 and "&'a str" in code, code
    assert not UNSAFE.search(code_only("#![forbid(unsafe_code)]"))
    for atomic in ("use std::sync::atomic::Ordering;", "core::sync::atomic", "AtomicBool", "fence(SeqCst)", "AtomicCell"):
        assert ATOMICS.search(atomic), atomic
    for plain in ("Atomically", "defence(x)", "atomic", "an_atomic::x"):
        assert not ATOMICS.search(plain), plain
    tested = without_tests("x\n#[cfg(test)]\nmod tests { fn f() { AtomicU8 } }\n#[cfg(test)] use a::AtomicU8;\ny AtomicU16")
    assert ATOMICS.findall(tested) == ["AtomicU16"] and tested.count("\n") == 4, tested
    packages = [
        {"name": "xsend-tcp", "manifest_path": "/r/crates/tcp/Cargo.toml", "dependencies": [
            {"name": "xsend-xsk", "kind": None}, {"name": "xsend-testkit", "kind": "dev"}, {"name": "libc", "kind": None}]},
        {"name": "xsend-xsk", "manifest_path": "/r/crates/xsk/Cargo.toml", "dependencies": [
            {"name": "clap", "kind": None}, {"name": "xsk-rs", "kind": None}]},
        {"name": "xsend-testkit", "manifest_path": "/r/crates/testkit/Cargo.toml", "dependencies": []},
        {"name": "xsend-new", "manifest_path": "/r/crates/new/Cargo.toml", "dependencies": []},
        {"name": "xsend-benches", "manifest_path": "/r/benches/Cargo.toml", "dependencies": [
            {"name": "xsend-xsk", "kind": "dev"}, {"name": "clap", "kind": "dev"}]},
    ]
    found = list(check_dependencies(packages, pathlib.Path("/r")))
    assert [line.split(":")[0] for line in found] == ["crates/tcp", "crates/tcp", "crates/xsk", "crates/new", "benches"], found


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if sys.argv[1:]:
        print(f"unknown option {sys.argv[1]}; try --help", file=sys.stderr)
        return 2
    root = pathlib.Path(__file__).resolve().parent.parent
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
        cwd=root, check=True, capture_output=True, text=True,
    )
    findings = [*check_dependencies(json.loads(metadata.stdout)["packages"], root), *check_sources(root)]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
