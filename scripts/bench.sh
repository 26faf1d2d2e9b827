#!/usr/bin/env bash
# Benchmarks, and the ratios of ours to the best peer's throughput. Installs what is missing.
#
#   scripts/bench.sh              all benchmarks, five rounds of about forty seconds
#   scripts/bench.sh FILTER       only those whose name matches the regular expression, such as `hand-over` or `tail/`
#   scripts/bench.sh --rounds N   another number of rounds
#   scripts/bench.sh --ratios     no benchmark, only the ratios of the last run
#   scripts/bench.sh --help       this text
#
# A ratio compares medians of one round with that round's best peer; above 1 ours is faster. Printed are the median of
# the rounds' ratios, the lowest and the highest. Exit status 1 if by that median moving a batch of 64 KiB goes at less
# than 0.9 of the best peer's rate, on one core or on two. On a machine that does other work the two-core figures are
# the scheduler's: the two threads spin, and each wants its core for itself.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

least=0.9
filter=() run=yes rounds=5
while [ $# -gt 0 ]; do
    case $1 in
    --ratios) run=no ;;
    --rounds)
        [[ ${2:-} =~ ^[1-9][0-9]?$ ]] || usage_error "--rounds takes a number from 1 to 99"
        rounds=$2
        shift
        ;;
    -h | --help)
        show_help
        exit 0
        ;;
    -*) usage_error "unknown option $1" ;;
    *)
        [ "${#filter[@]}" -eq 0 ] || usage_error "one filter at a time"
        filter=("$1")
        ;;
    esac
    shift
done
cd "$ROOT"

need_packages "${BUILD_PACKAGES[@]}" jq
need_rust

# Where criterion leaves what it found, whatever cargo's own target directory is.
export CRITERION_HOME=$ROOT/target/criterion
# One line a benchmark of a round: round, group, name and median in nanoseconds, separated by tabs.
medians() {
    local round=$1 found dir
    while IFS= read -r found; do
        dir=$(dirname "$found")
        jq -r --arg round "$round" --slurpfile estimates "$dir/estimates.json" \
            '[$round, .group_id, .function_id, $estimates[0].median.point_estimate] | @tsv' "$found"
    done < <(find "$CRITERION_HOME" -path '*/new/benchmark.json' | sort)
}

found=$CRITERION_HOME/rounds.tsv
if [ "$run" = yes ]; then
    # Else what an earlier run found would be compared with this one's.
    rm -rf "$CRITERION_HOME"
    for ((round = 1; round <= rounds; round++)); do
        say "== round $round of $rounds"
        cargo bench --locked -p xsend-benches --bench signal -- "${filter[@]}"
        medians "$round" >>"$found"
    done
fi
[ -f "$found" ] || die "nothing has been measured yet: run it without --ratios"

# In a group that has both ours, `xsend ...`, and peers, each of ours gets a line with its ratio to the best peer.
# The one named `xsend batch` is held to `least`.
awk -F '\t' -v least="$least" '
    { time[$1, $2, $3] = $4; if ($1 > rounds) rounds = $1 }
    !(($2, $3) in seen) {
        seen[$2, $3]
        if (!($2 in known)) { known[$2]; groups[++group_count] = $2 }
        if ($3 ~ /^xsend /) ours[$2] = ours[$2] "\t" $3
    }
    $3 !~ /^xsend / && (!(($1, $2) in best) || $4 < best[$1, $2]) { best[$1, $2] = $4 }
    END {
        for (g = 1; g <= group_count; g++) {
            group = groups[g]
            if (!(group in ours) || !((1, group) in best)) continue
            count = split(substr(ours[group], 2), names, "\t")
            for (at = 1; at <= count; at++) {
                # Sorted by insertion: they are few.
                for (round = 1; round <= rounds; round++) {
                    ratio = best[round, group] / time[round, group, names[at]]
                    for (place = round; place > 1 && ratios[place - 1] > ratio; place--) ratios[place] = ratios[place - 1]
                    ratios[place] = ratio
                }
                middle = (ratios[int((rounds + 1) / 2)] + ratios[int(rounds / 2) + 1]) / 2
                held = names[at] == "xsend batch"
                verdict = !held ? "" : middle >= least ? "   at least " least ": yes" : "   at least " least ": NO"
                printf "%-20s %-22s %5.2f of the best peer (%.2f to %.2f, %d rounds)%s\n", group, names[at], middle,
                    ratios[1], ratios[rounds], rounds, verdict
                judged++
                if (held && middle < least) low++
            }
        }
        if (!judged) print "no ratios: nothing of ours was run beside a peer"
        exit(low > 0)
    }' "$found"
