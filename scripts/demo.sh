#!/usr/bin/env bash
# Shows xsend at work on this machine: sends a file over AF_XDP TCP from one network namespace to an ordinary kernel
# TCP receiver in another, compares the SHA-256, then the rate and the CPU time with those of the kernel's own sender
# (cubic, no segmentation offload), alternating. Installs what is missing, builds, and leaves nothing behind.
#
#   scripts/demo.sh                 1 GiB, three rounds
#   scripts/demo.sh --bytes 4Gi     another size
#
#   --bytes SIZE     bytes a transfer, such as 64Mi or 1G (default 1Gi)
#   --rounds N       timed transfers of each sender (default 3)
#   --mtu N          MTU of the link (default 1500)
#   --json           one JSON document on standard output and nothing else there
#   --kernel HOW     how the kernel's sender gives its bytes: write (default) or sendfile
#   --help           this text
#
# XSEND_BIN and KERNEL_SEND_BIN in the environment name programs that are already built. Needs root.
#
# Each rate is the receiver's: bytes over the time from the first byte to the FIN, for both senders alike. CPU time is
# what the kernel accounts to the sending process, user and system. Nothing is hashed while a clock runs: the SHA-256 is
# that of a transfer before the timed ones. The exit status is 0 if the hash matched and the interface was left as found.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bytes=$((1 << 30)) rounds=3 mtu=1500 json=no how=write
while [ $# -gt 0 ]; do
    case $1 in
    --bytes) bytes=$(to_bytes "${2:-}") || usage_error "--bytes needs a size, such as 64Mi" ;;
    --rounds) rounds=${2:-} ;;
    --mtu) mtu=${2:-} ;;
    --kernel) how=${2:-} ;;
    --json)
        json=yes
        shift
        continue
        ;;
    -h | --help)
        show_help
        exit 0
        ;;
    *) usage_error "unknown option $1" ;;
    esac
    shift $(($# < 2 ? 1 : 2))
done
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || usage_error "--rounds needs a number from 1 to 999"
if ! [[ $mtu =~ ^[0-9]{3,5}$ ]] || [ "$mtu" -lt 576 ] || [ "$mtu" -gt 65535 ]; then
    usage_error "--mtu needs a number from 576 to 65535"
fi
[[ $how =~ ^(write|sendfile)$ ]] || usage_error "--kernel is write or sendfile"
[ "$bytes" -gt 0 ] || usage_error "--bytes needs at least 1"
need_root

# Everything made here carries this process's id, so that demonstrations run side by side, and one that was killed is
# recognised by the next: its owner is gone.
a=xsd$$a b=xsd$$b dir='' sink_pid='' port=9000

clean_up() {
    # What is left must not keep the rest from being cleaned.
    set +e
    [ -z "$sink_pid" ] || kill -9 "$sink_pid" 2>/dev/null
    remove_namespace "$a"
    remove_namespace "$b"
    [ -z "$dir" ] || rm -rf "$dir"
}

sweep() {
    local path pid
    for path in /run/netns/xsd[0-9]*[ab] /dev/shm/xsd[0-9]*d "${TMPDIR:-/tmp}"/xsd[0-9]*d; do
        [[ $(basename "$path") =~ ^xsd([0-9]+)[abd]$ ]] || continue
        pid=${BASH_REMATCH[1]}
        { [ -e "$path" ] && [ ! -d "/proc/$pid" ]; } || continue
        say "removing $path, left by a demonstration that was killed"
        case $path in
        /run/netns/*) remove_namespace "$(basename "$path")" ;;
        *) rm -rf "$path" ;;
        esac
    done
}

# A folder in memory where there is room, so that no disk slows either sender; one on the disk else.
make_folder() {
    local parent=/dev/shm free
    free=$(df --output=avail -B1 "$parent" 2>/dev/null | tail -n 1) || free=0
    if [ "${free:-0}" -lt $((bytes + (64 << 20))) ]; then
        parent=${TMPDIR:-/tmp}
        say "no room for $bytes bytes in /dev/shm: the file goes to $parent, whose disk may limit both senders"
    fi
    mkdir -m 700 "$parent/xsd$$d"
    dir=$parent/xsd$$d
}

# Sets sender_core and receiver_core from the cores this process may use; leaves both empty where there is only one.
choose_cores() {
    local allowed=() range
    while IFS= read -r range; do
        mapfile -t -O "${#allowed[@]}" allowed < <(seq "${range%-*}" "${range#*-}")
    done < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n')
    sender_core='' receiver_core=''
    if [ "${#allowed[@]}" -ge 2 ]; then
        receiver_core=${allowed[0]} sender_core=${allowed[1]}
    else
        say "only one core: sender and receiver share it, and no rate below means much"
    fi
}

# in_ns NAMESPACE CORE COMMAND...
in_ns() {
    local ns=$1 core=$2
    shift 2
    if [ -n "$core" ]; then set -- taskset -c "$core" "$@"; fi
    exec ip netns exec "$ns" "$@"
}

# Starts `xsend sink` for one connection, with these options, and waits until it listens.
start_sink() {
    local tries
    (in_ns "$b" "$receiver_core" "$xsend" sink --listen "$RECEIVER_ADDR:$port" --once --json "$@") \
        >"$dir/sink.json" 2>"$dir/sink.err" </dev/null &
    sink_pid=$!
    for ((tries = 0; tries < 500; tries++)); do
        if [ -n "$(ip netns exec "$b" ss -ltnH "sport = :$port")" ]; then return; fi
        kill -0 "$sink_pid" 2>/dev/null || break
        sleep 0.02
    done
    die "xsend sink does not listen: $(cat "$dir/sink.err")"
}

# Waits, a bounded time, for the sink's own end.
end_sink() {
    local tries status=0
    for ((tries = 0; tries < 3000; tries++)); do
        kill -0 "$sink_pid" 2>/dev/null || break
        sleep 0.02
    done
    kill -9 "$sink_pid" 2>/dev/null || true
    wait "$sink_pid" || status=$?
    sink_pid=''
    [ "$status" -eq 0 ] || die "xsend sink failed ($status): $(cat "$dir/sink.err")"
}

# transfer WHO [SINK-OPTION...]: one transfer. Leaves send.json, sink.json and cpu (user and system seconds).
transfer() {
    local who=$1 command status=0
    shift
    case $who in
    xsend) command=("$xsend" send --json "$dir/payload" "$RECEIVER_ADDR:$port") ;;
    kernel) command=("$kernel_send" --congestion cubic "--$how" "$dir/payload" "$RECEIVER_ADDR:$port") ;;
    esac
    start_sink "$@"
    TIMEFORMAT='%U %S'
    # The inner braces keep the report of `time` apart from what the command writes.
    { time {
        (in_ns "$a" "$sender_core" timeout -k 5 600 "${command[@]}") >"$dir/send.json" 2>"$dir/send.err" </dev/null
    }; } 2>"$dir/cpu" || status=$?
    [ "$status" -eq 0 ] || die "$who failed ($status): $(cat "$dir/send.err")"
    end_sink
    local got
    got=$(jq '.end.sum_received.bytes' "$dir/sink.json")
    [ "$got" = "$bytes" ] || die "$who: $got of $bytes bytes arrived"
}

# One line of JSON for a timed transfer.
figures() {
    local user system
    read -r user system <"$dir/cpu"
    jq -c -n --arg who "$1" --argjson cpu "[$user, $system]" \
        --slurpfile sink "$dir/sink.json" --slurpfile send "$dir/send.json" '
        $sink[0].end.sum_received as $got | {
            who: $who,
            gbps: ($got.bytes * 8 / $got.seconds / 1e9),
            cpu_seconds_per_gib: (($cpu | add) / ($got.bytes / 1073741824)),
            frames_per_kick: $send[0].end.xsend.frames_per_kick,
            mode: $send[0].end.xsend.mode
        }'
}

build() {
    say "building"
    need_packages "${BUILD_PACKAGES[@]}" "${NETWORK_PACKAGES[@]}"
    if [ -z "${XSEND_BIN:-}" ] || [ -z "${KERNEL_SEND_BIN:-}" ]; then
        need_rust
        (cd "$ROOT" && cargo build --release --locked -q -p xsend-cli -p xsend-testkit --bins) >&2
    fi
    local target=${CARGO_TARGET_DIR:-$ROOT/target}/release
    xsend=${XSEND_BIN:-$target/xsend} kernel_send=${KERNEL_SEND_BIN:-$target/kernel-send}
    local program
    for program in "$xsend" "$kernel_send"; do
        [ -x "$program" ] || die "the build left no $program"
    done
}

main() {
    build
    sweep
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    make_folder
    choose_cores
    make_pair "$a" "$b" "$mtu"
    local thread round pair who
    if [ -n "$receiver_core" ]; then
        for thread in $(napi_threads "$b"); do
            taskset -cp "$receiver_core" "$thread" >/dev/null
        done
    fi
    say "making $bytes bytes"
    head -c "$bytes" /dev/urandom >"$dir/payload"
    local sent_hash received_hash
    sent_hash=$(sha256sum "$dir/payload" | cut -d ' ' -f 1)
    interface_state "$a" "$a" >"$dir/before"

    say "sending once to compare the SHA-256"
    transfer xsend --sha256
    received_hash=$(jq -r '.end.xsend.sha256 // ""' "$dir/sink.json")

    for ((round = 1; round <= rounds; round++)); do
        # The order changes, so that a machine that warms up or tires favours neither.
        pair='xsend kernel'
        if ((round % 2 == 0)); then pair='kernel xsend'; fi
        for who in $pair; do
            transfer "$who"
            figures "$who" >>"$dir/rounds"
            say "round $round of $rounds: $(tail -n 1 "$dir/rounds" |
                jq -r '"\(.who) \(.gbps * 100 | round / 100) Gbit/s, \(.cpu_seconds_per_gib * 1000 | round / 1000) CPU s/GiB"')"
        done
    done

    local restored=true
    interface_state "$a" "$a" >"$dir/after"
    cmp -s "$dir/before" "$dir/after" || {
        restored=false
        diff "$dir/before" "$dir/after" >&2 || true
    }
    report "$sent_hash" "$received_hash" "$restored"
}

report() {
    local match=false
    if [ "$1" = "$2" ]; then match=true; fi
    jq -s --argjson match "$match" --argjson restored "$3" --argjson mtu "$mtu" --argjson bytes "$bytes" --arg how "$how" \
        --arg cores "sender ${sender_core:-any}, receiver ${receiver_core:-any}" '
        def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor]
            else (.[length / 2 - 1] + .[length / 2]) / 2 end;
        def of($who): map(select(.who == $who));
        of("xsend") as $x | of("kernel") as $k | {
            sha256_match: $match, interface_restored: $restored, mtu: $mtu, bytes: $bytes, flows: 1,
            xsend: {
                gbps: ($x | map(.gbps) | median), cpu_seconds_per_gib: ($x | map(.cpu_seconds_per_gib) | median),
                frames_per_kick: ($x | map(.frames_per_kick) | median), mode: $x[0].mode
            },
            kernel: {
                gbps: ($k | map(.gbps) | median), cpu_seconds_per_gib: ($k | map(.cpu_seconds_per_gib) | median),
                congestion: "cubic", segmentation_offload: false, how: $how
            },
            ratio: ([$x, $k] | transpose | map(.[0].gbps / .[1].gbps) | median),
            cores: $cores, rounds: ($x | length)
        }' "$dir/rounds" >"$dir/report.json"
    if [ "$json" = yes ]; then
        cat "$dir/report.json"
    else
        jq -r '
            def r($digits): . * pow(10; $digits) | round / pow(10; $digits);
            def verdict: if . then "yes" else "NO" end;
            "bytes=\(.bytes) mtu=\(.mtu) flows=\(.flows) rounds=\(.rounds) mode=\(.xsend.mode) cores=\(.cores)",
            "same SHA-256 at the receiver: \(.sha256_match | verdict)",
            "interface left as found:      \(.interface_restored | verdict)",
            "xsend:  \(.xsend.gbps | r(2)) Gbit/s, \(.xsend.cpu_seconds_per_gib | r(3)) CPU s/GiB, \(.xsend.frames_per_kick | r(1)) frames a kick",
            "kernel: \(.kernel.gbps | r(2)) Gbit/s, \(.kernel.cpu_seconds_per_gib | r(3)) CPU s/GiB (cubic, no segmentation offload, \(.kernel.how))",
            "ratio:  \(.ratio | r(2)) (median of \(.rounds) pairs; above 1 xsend is faster)"' "$dir/report.json"
    fi
    jq -e '.sha256_match and .interface_restored' "$dir/report.json" >/dev/null ||
        die "not as it should be, see above"
}

main
