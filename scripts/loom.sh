#!/usr/bin/env bash
# Model checking of crates/signal: loom runs every model through all interleavings, up to a bound on preemptions, and
# through every value that a weak load may return.
#
#   scripts/loom.sh                      all models, with deep bounds
#   scripts/loom.sh --quick              all models, with the bounds of continuous integration
#   scripts/loom.sh --mutants [NAME...]  weakens each fence and ordering in turn; loom must find the fault in each
#                                        mutant, or in those whose names begin so: --mutants cork "wait (A)"
#   scripts/loom.sh --help               this text
#
# Deep bounds are for two cores and ten minutes. A model that fails says what loom saw. The mutants' lines are
# explained by scripts/mutants.py --help, which has more options; their exit status is 1 if one survives.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bounds=deep mutants=no
case ${1:-} in
'') ;;
--quick) bounds=quick ;;
--mutants) mutants=yes ;;
-h | --help)
    show_help
    exit 0
    ;;
*) usage_error "unknown option $1" ;;
esac
[ "$mutants" = yes ] || [ $# -le 1 ] || usage_error "too many words"
cd "$ROOT"

need_packages gcc libc6-dev python3
need_rust

if [ "$mutants" = yes ]; then
    shift
    exec python3 scripts/mutants.py "$@"
fi

# Whatever loom would take from the environment makes it look less far.
unset "${!LOOM_@}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A profile that builds in half the time; the models run as fast.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
XSEND_LOOM=$bounds RUSTFLAGS='--cfg loom' \
    cargo test --locked --target-dir target/loom -p xsend-signal --release --lib loom | tee "$log"
# A filter that matches nothing passes, too.
grep -q '^test result: ok\. [1-9]' "$log" || die "no model has run: has the module loom_models another name?"
