#!/usr/bin/env bash
# Autocork against completion on two real processors: the shipped protocol, and copies of it with fences left out, in
# the same harness (crates/signal/tests/race.rs). Prints how the rounds ended.
#
#   scripts/race.sh               a thousand million rounds of the shipped protocol, a tenth of that of each copy
#   scripts/race.sh --rounds N    another number; at least 100000
#   scripts/race.sh --help        this text
#
# Takes some minutes, and two processors of their own. In a table row `corked+quiet` is the lost wake-up: the writer
# relies on a completion that has passed. The other three are `clear+quiet` (the completion came first), `clear+release`
# (each saw the other) and `corked+release` (the cork came first). "both fences" is the control: plain stores as in
# the copies that lose, and the fences that the shipped one has.
#
# The exit status is 1 if the shipped protocol or the control lost a wake-up, if under 1 % of the shipped one's rounds
# went either way (the writer found nothing in flight; a completion released its cork), or if the copy with plain
# stores lost none, as then the harness could not have seen one.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rounds=1000000000
while [ $# -gt 0 ]; do
    case $1 in
    --rounds)
        [ $# -ge 2 ] || usage_error "--rounds needs a number"
        [[ $2 =~ ^[1-9][0-9]{5,14}$ ]] || usage_error "--rounds takes 100000 or more, in digits, not $2"
        rounds=$2
        shift
        ;;
    -h | --help)
        show_help
        exit 0
        ;;
    *) usage_error "unknown option $1" ;;
    esac
    shift
done
cd "$ROOT"
[ "$(nproc)" -ge 2 ] || die "needs two processors, may use $(nproc): see taskset and the limits of the container"
need_rust

# Formats each line of the test as it comes, keeps the rest of its output for when it fails.
rows() {
    awk -F '\t' -v log_file="$log" '
        function share(count) { return sprintf("%.0f %8.4f%%", count, 100 * count / $3) }
        BEGIN {
            printf "%-20s %12s %22s %22s %22s %22s %9s\n", "protocol", "rounds", "clear+quiet", "clear+release",
                "corked+release", "corked+quiet", "ns/round"
            fflush()
        }
        { print > log_file }
        $1 == "race:" {
            printf "%-20s %12.0f %22s %22s %22s %22s %9s\n", $2, $3, share($4), share($5), share($6), share($7), $8
            fflush()
        }
    '
}

# What the rows say, one line a fault; fails if there is one.
verdict() {
    awk -F '\t' '
        function fault(text) { print "FAILED: " text; faults++ }
        $1 == "race:" { seen[$2] = 1; rounds[$2] = $3; clear[$2] = $4 + $5; corked[$2] = $6; lost[$2] = $7 }
        END {
            split("shipped,both fences,plain stores", needed, ",")
            for (i in needed) if (!(needed[i] in seen)) fault("no row for: " needed[i])
            if (faults) exit 1
            if (lost["shipped"] > 0) fault("the shipped protocol lost " lost["shipped"] " wake-ups")
            if (lost["both fences"] > 0) fault("the control lost " lost["both fences"] " wake-ups: the harness is wrong")
            if (clear["shipped"] * 100 < rounds["shipped"])
                fault("the writer found nothing in flight in under 1 % of the rounds")
            if (corked["shipped"] * 100 < rounds["shipped"])
                fault("a completion released a cork in under 1 % of the rounds")
            if (lost["plain stores"] == 0) fault("plain stores lost no wake-up, so the harness may be blind: take more --rounds")
            exit faults > 0
        }
    ' "$log"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
race=(cargo test --quiet --locked --release -p xsend-signal --test race)
"${race[@]}" --no-run
say "$rounds rounds of the shipped protocol, then $((rounds / 10)) of each copy, on: $(uname -m)," \
    "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
status=0 found=0
XSEND_RACE_ROUNDS=$rounds "${race[@]}" -- --nocapture 2>&1 | rows || status=$?
verdict || found=1
if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then
    # It broke down otherwise: the counts do not add up.
    grep -v '^race:' "$log" >&2
    say "FAILED: the harness"
fi
[ "$status" -eq 0 ] && [ "$found" -eq 0 ] || exit 1
say "no lost wake-up in $rounds rounds"
