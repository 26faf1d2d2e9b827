#!/usr/bin/env bash
# Makes two network namespaces joined by veth, to try xsend by hand on any machine without touching its own network.
# Between them there may be a link that delays, loses, reorders, duplicates, corrupts, limits and marks what crosses it.
#
#   scripts/netns.sh up [NAME] [OPTIONS]   make NAME-a (the sender's) and NAME-b (the receiver's), and say how to use them
#   scripts/netns.sh down [NAME]           end what runs in them and remove them; prints what an impaired link counted
#   scripts/netns.sh list                  the pairs made here
#
#   scripts/netns.sh up --delay 100ms --loss 1% --rate 1g
#
# NAME is "xsend" unless given, at most 13 letters, digits and dashes. Needs root.
#
# Options of up:
#   --mtu BYTES             68 to 65535 (1500, or MTU in the environment)
# With any of the following there is an impaired link, a process in NAME-m, which acts alike both ways:
#   --delay TIME            how long every frame takes: 100ms, 2s, 50us
#   --jitter TIME           how much longer a frame may take; the order is kept
#   --loss SHARE            how many frames are lost: 1% or 0.01
#   --burst-loss SHARE:N    how many frames begin a burst of N losses on average: 0.1%:20
#   --reorder SHARE[:TIME]  how many frames are held back, and for how long (1ms)
#   --duplicate SHARE       how many frames arrive twice
#   --corrupt SHARE         how many frames have a bit flipped, where a checksum must find it
#   --rate BITS             bits a second: 1g, 500m, 64k
#   --burst BYTES           what may go at once after a pause (0: one frame after the other, as on a wire)
#   --queue BYTES           what may wait for the rate: 64Ki, 1M (50 ms at the rate, 64 KiB at least)
#   --ecn-at BYTES          mark CE when more than this waits (never)
#   --outage FROM-TO,...    when nothing gets through, since the start: 20s-30s
#   --seed N                what is random depends on it and on the sequence of frames alone (0)
#   --back-OPTION ...       any of these but --seed, from the receiver to the sender alone: --back-loss 0
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Marks the sender's interface, so that nothing is ever removed that was not made here.
MARK="made by xsend scripts/netns.sh"

is_ours() {
    [ -e "/run/netns/$1-a" ] && ip -n "$1-a" link show dev "$1-a" 2>/dev/null | grep -qF "$MARK"
}

# Where an impaired link's process id is, and where it writes.
pid_file() { printf '/run/xsend-netns-%s.pid' "$1"; }
log_file() { printf '/run/xsend-netns-%s.log' "$1"; }

# The process id of a pair's impaired link, while it runs: a number in a file may have become another process's.
link_pid() {
    local pid
    pid=$(cat "$(pid_file "$1")" 2>/dev/null) || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = impaired ] || return 1
    [ "$(ip netns identify "$pid")" = "$1-m" ] || return 1
    printf '%s\n' "$pid"
}

# start_link NAME MTU WORDS...: runs the link in NAME-m, in the background, and waits until it is ready.
start_link() {
    local name=$1 mtu=$2 log pid
    shift 2
    log=$(log_file "$name")
    : >"$log"
    # `ip netns exec` becomes the program it runs, and setsid too: the process id stays the same.
    setsid ip netns exec "$name-m" "$IMPAIRED" --mtu "$mtu" "$@" "$name-n" "$name-f" </dev/null >"$log" 2>&1 &
    pid=$!
    printf '%s\n' "$pid" >"$(pid_file "$name")"
    for _ in {1..100}; do
        ! grep -qx ready "$log" || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    die "the link did not start: $(cat "$log")"
}

# Ends the link and prints what it counted.
stop_link() {
    local pid
    if pid=$(link_pid "$1"); then
        kill -TERM "$pid" 2>/dev/null || true
        for _ in {1..100}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        grep '^{' "$(log_file "$1")" || say "the link said: $(cat "$(log_file "$1")")"
    fi
    rm -f "$(pid_file "$1")" "$(log_file "$1")"
}

remove() {
    stop_link "$1"
    local side
    for side in a b m; do remove_namespace "$1-$side"; done
}

find_impaired() {
    for IMPAIRED in "$ROOT"/target/{release,debug}/impaired; do
        [ ! -x "$IMPAIRED" ] || return 0
    done
    die "first: cargo build --release -p xsend-testkit --bins"
}

up() {
    local name=$1 mtu=$2 between='' v6='' peer_v6='' side
    shift 2
    if ! [[ $mtu =~ ^[0-9]{1,5}$ ]] || [ "$mtu" -lt 68 ] || [ "$mtu" -gt 65535 ]; then
        usage_error "'$mtu' is not an MTU from 68 to 65535"
    fi
    need_packages "${NETWORK_PACKAGES[@]}"
    if [ $# -gt 0 ]; then find_impaired; fi
    for side in a b m; do
        [ ! -e "/run/netns/$name-$side" ] || die "$name-$side is there already: scripts/netns.sh down $name"
    done
    trap 'remove "$name"' EXIT
    trap 'exit 1' HUP INT TERM
    if [ $# -gt 0 ]; then
        make_impaired_pair "$name" "$mtu"
        start_link "$name" "$mtu" "$@"
        between="
Between them, in $name-m, process $(cat "$(pid_file "$name")"): impaired $*
"
    else
        make_pair "$name-a" "$name-b" "$mtu"
    fi
    # IPv6 takes no link with a smaller MTU.
    if [ "$mtu" -ge 1280 ]; then v6="  $SENDER_ADDR_V6" peer_v6="  $RECEIVER_ADDR_V6"; fi
    address_pair "$name"
    ip -n "$name-a" link set dev "$name-a" alias "$MARK"
    trap - EXIT HUP INT TERM
    cat <<END
Two namespaces, MTU $mtu:
  $name-a   interface $name-a   $SENDER_ADDR$v6   (send from here)
  $name-b   interface $name-b   $RECEIVER_ADDR$peer_v6   (receive here)
$between
Try, in two terminals (cargo build --release first):
  sudo ip netns exec $name-b $ROOT/target/release/xsend sink --listen $RECEIVER_ADDR:9000 --sha256
  sudo ip netns exec $name-a $ROOT/target/release/xsend send FILE $RECEIVER_ADDR:9000

Or receive with something else:
  sudo ip netns exec $name-b nc -l 9000 > copy

When done: scripts/netns.sh down $name
END
}

down() {
    is_ours "$1" || die "there is no pair '$1' made here: scripts/netns.sh list"
    remove "$1"
}

list() {
    local path name
    for path in /run/netns/*-a; do
        name=$(basename "${path%-a}")
        if is_ours "$name"; then printf '%s\n' "$name"; fi
    done
}

what=${1:-}
case $what in
-h | --help)
    show_help
    exit 0
    ;;
up | down | list) shift ;;
*) usage_error "up, down or list?" ;;
esac

name='' mtu=${MTU:-1500} link=()
while [ $# -gt 0 ]; do
    option=${1#--}
    case $1 in --back-mtu | --back-seed) ;; *) option=${option#back-} ;; esac
    case $1 in
    -h | --help)
        show_help
        exit 0
        ;;
    --*)
        [ "$what" = up ] || usage_error "$what takes no option $1"
        [ $# -ge 2 ] || usage_error "$1 needs a value"
        case $option in
        mtu) mtu=$2 ;;
        delay | jitter | loss | burst-loss | reorder | duplicate | corrupt | rate | burst | queue | ecn-at | outage | seed)
            link+=("$1" "$2")
            ;;
        *) usage_error "unknown option $1" ;;
        esac
        shift
        ;;
    *)
        if [ -n "$name" ] || [ "$what" = list ]; then usage_error "too many words"; fi
        name=$1
        ;;
    esac
    shift
done
name=${name:-xsend}
# The longest interface name is 15 characters, two of them ours.
[[ $name =~ ^[A-Za-z0-9][A-Za-z0-9-]{0,12}$ ]] || usage_error "'$name' is not a name of at most 13 letters, digits and dashes"
need_root
case $what in
up) up "$name" "$mtu" "${link[@]}" ;;
down) down "$name" ;;
list) list ;;
esac
