#!/usr/bin/env bash
# All checks, as continuous integration runs them: format, lints, build, tests, documentation, who may know whom,
# loom's models, the scripts, licences, and end to end over veth in network namespaces. Installs what is missing.
#
#   scripts/test.sh            everything
#   scripts/test.sh --quick    without the end-to-end tests and the demonstration
#   scripts/test.sh --help     this text
#
# As root the end-to-end tests run and a skipped one is a failure; without root they are skipped, loudly, unless CI is
# set. Goes on after a failure and ends with a line `N passed, N failed`; the exit status is 0 if nothing failed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=no
case ${1:-} in
'') ;;
--quick) quick=yes ;;
-h | --help)
    show_help
    exit 0
    ;;
*) usage_error "unknown option $1" ;;
esac
[ $# -le 1 ] || usage_error "too many words"
cd "$ROOT"

root=no
if [ "$(id -u)" -eq 0 ]; then root=yes; fi
if [ "$root" = yes ] || [ -n "${CI:-}" ]; then export XSEND_E2E_REQUIRED=1; fi
if [ "$root" = no ] && [ "$quick" = no ]; then
    say "not root: what needs network namespaces is skipped (sudo scripts/test.sh runs it)"
fi

passed=0 failed=0 failures=() log=$(mktemp)
trap 'rm -f "$log"' EXIT

# stage NAME COMMAND...: runs it and counts it. Where it prints cargo's `test result:` lines, the tests count instead.
stage() {
    local name=$1 status=0 ok bad
    shift
    say "== $name"
    "$@" 2>&1 | tee "$log" || status=$?
    # `test result: ok. 12 passed; 0 failed; 0 ignored; ...`
    read -r ok bad < <(awk '/^test result: / {
        for (i = 2; i <= NF; i++) { if ($i == "passed;") ok += $(i - 1); if ($i == "failed;") bad += $(i - 1) }
    } END { print ok + 0, bad + 0 }' "$log")
    if [ $((ok + bad)) -eq 0 ]; then
        if [ "$status" -eq 0 ]; then ok=1; else bad=1; fi
    elif [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        # It broke down besides its tests.
        bad=1
    fi
    passed=$((passed + ok)) failed=$((failed + bad))
    if [ "$bad" -ne 0 ]; then failures+=("$name"); fi
}

need_packages "${BUILD_PACKAGES[@]}" "${NETWORK_PACKAGES[@]}" shellcheck python3
if [ "$quick" = no ]; then need_packages tshark socat netcat-openbsd strace; fi
need_rust
for component in fmt clippy; do
    cargo "$component" --version >/dev/null 2>&1 ||
        die "cargo $component is missing: rustup component add rustfmt clippy, or apt-get install rust-clippy rustfmt"
done

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps; }

boundaries() { python3 scripts/boundaries.py --self-test && python3 scripts/boundaries.py; }

mutants() { python3 scripts/mutants.py --self-test && python3 scripts/mutants.py --check docs/memory-ordering.md; }

scripts() {
    local file
    shellcheck -x scripts/*.sh .ci/run || return 1
    for file in scripts/*.sh scripts/*.py; do
        [ -x "$file" ] || [ "$file" = scripts/lib.sh ] || {
            say "$file is not executable"
            return 1
        }
    done
}

# Two at once, of a size that shows errors rather than rates.
demonstrations() {
    local first status=0
    scripts/demo.sh --bytes 64Mi --rounds 1 --json &
    first=$!
    scripts/demo.sh --bytes 64Mi --rounds 1 || status=$?
    wait "$first" || status=$?
    return "$status"
}

stage "format" cargo fmt --all --check
stage "lints" cargo clippy --locked --workspace --all-targets -- -D warnings
stage "who may know whom" boundaries
stage "every memory order has its letter" mutants
stage "scripts" scripts
stage "documentation" documentation
# With the tests' profile, so that the program under test keeps its assertions.
stage "build" cargo build --locked --profile test -p xsend-cli
stage "tests" cargo test --locked --workspace --exclude xsend-testkit --no-fail-fast
stage "tests of the test kit" cargo test --locked -p xsend-testkit --lib --bins --test kernel_send
stage "its examples" cargo test --locked -p xsend-testkit --doc
stage "loom's models, quick bounds" scripts/loom.sh --quick
stage "loom rejects every mutant" scripts/loom.sh --mutants
if [ "$quick" = no ]; then
    # Each test has namespaces of its own; two at a time, so that the machine and not the test waits.
    stage "end to end" cargo test --locked -p xsend-testkit --no-fail-fast --test 'e2e_*' -- --test-threads=2
    if [ "$root" = yes ]; then
        stage "release build" cargo build --locked --release -p xsend-cli -p xsend-testkit --bins
        stage "demonstration, two at once" demonstrations
    fi
fi
if cargo deny --version >/dev/null 2>&1; then
    stage "licences, bans, sources" cargo deny --locked check bans licenses sources
else
    say "== licences, bans, sources: not checked, cargo-deny is not installed (cargo install --locked cargo-deny)"
fi

for name in "${failures[@]}"; do say "FAILED: $name"; done
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
