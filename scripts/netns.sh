#!/usr/bin/env bash
# Makes two network namespaces joined by veth, to try xsend by hand on any machine without touching its own network.
#
#   scripts/netns.sh up [NAME]     make NAME-a (the sender's) and NAME-b (the receiver's), and say how to use them
#   scripts/netns.sh down [NAME]   end what runs in them and remove them
#   scripts/netns.sh list          the pairs made here
#
# NAME is "xsend" unless given, at most 13 letters, digits and dashes. MTU=9000 in the environment sets another MTU.
# Needs root.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Marks the sender's interface, so that nothing is ever removed that was not made here.
MARK="made by xsend scripts/netns.sh"

is_ours() {
    [ -e "/run/netns/$1-a" ] && ip -n "$1-a" link show dev "$1-a" 2>/dev/null | grep -qF "$MARK"
}

up() {
    local name=$1 mtu=${MTU:-1500}
    [[ $mtu =~ ^[0-9]+$ ]] || usage_error "MTU=$mtu is not a number"
    need_packages "${NETWORK_PACKAGES[@]}"
    for side in a b; do
        [ ! -e "/run/netns/$name-$side" ] || die "$name-$side is there already: scripts/netns.sh down $name"
    done
    trap 'remove_namespace "$name-a"; remove_namespace "$name-b"' EXIT
    make_pair "$name-a" "$name-b" "$mtu"
    ip -n "$name-a" link set dev "$name-a" alias "$MARK"
    trap - EXIT
    cat <<END
Two namespaces, MTU $mtu:
  $name-a   interface $name-a   $SENDER_ADDR   (send from here)
  $name-b   interface $name-b   $RECEIVER_ADDR   (receive here)

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
    remove_namespace "$1-a"
    remove_namespace "$1-b"
}

list() {
    local path name
    for path in /run/netns/*-a; do
        name=$(basename "${path%-a}")
        if is_ours "$name"; then printf '%s\n' "$name"; fi
    done
}

case ${1:-} in
-h | --help)
    show_help
    exit 0
    ;;
up | down) [ $# -le 2 ] || usage_error "too many words" ;;
list) [ $# -eq 1 ] || usage_error "too many words" ;;
*) usage_error "up, down or list?" ;;
esac
name=${2:-xsend}
# The longest interface name is 15 characters, two of them ours.
[[ $name =~ ^[A-Za-z0-9][A-Za-z0-9-]{0,12}$ ]] || usage_error "'$name' is not a name of at most 13 letters, digits and dashes"
need_root
case $1 in
up) up "$name" ;;
down) down "$name" ;;
list) list ;;
esac
