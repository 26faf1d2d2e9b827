# shellcheck shell=bash
# What the scripts share: messages, missing packages, and pairs of network namespaces joined by veth.
# Sourced, never run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ROOT

# Needed to build: clang and the headers for the XDP program and for libbpf and libxdp.
BUILD_PACKAGES=(gcc make clang llvm libelf-dev zlib1g-dev m4 pkg-config gcc-multilib libc6-dev)
# Needed to make and to look at namespaces.
NETWORK_PACKAGES=(iproute2 ethtool util-linux procps jq)
export BUILD_PACKAGES NETWORK_PACKAGES

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$(basename "$0"): $*"
    exit 1
}

usage_error() {
    say "$(basename "$0"): $*"
    say "Try: $0 --help"
    exit 2
}

# The comment block at the top of the script is its help.
show_help() {
    sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"
}

need_root() {
    [ "$(id -u)" -eq 0 ] || die "needs root, for network namespaces and AF_XDP: sudo $0"
}

# Installs the Debian packages that are not there yet; says clearly what is missing where that cannot be done.
need_packages() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian system: these packages, or what they are called here, are taken to be there: $*"
        return
    fi
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || die "missing packages: sudo apt-get install ${missing[*]}"
    say "installing: ${missing[*]}"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y -q --no-install-recommends install)
    if ! "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
        # An old list of packages names versions that are gone.
        apt-get -o DPkg::Lock::Timeout=300 -q update >&2 || say "apt-get update failed"
        "${install[@]}" "${missing[@]}" >&2 || die "could not install: ${missing[*]}"
    fi
}

# cargo of the version this workspace needs: rustup's where there is one, else Debian's packages of the current one.
need_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
    if ! command -v cargo >/dev/null; then
        need_packages rustc-web cargo-web
    fi
    found=$(rustc --version 2>/dev/null | awk '{print $2}')
    [ -n "$found" ] || die "no Rust compiler: install rustup (https://rustup.rs), or Debian's rustc-web and cargo-web"
    [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        die "Rust $found is older than $wanted: rustup update, or install Debian's rustc-web and cargo-web"
}

# "64Ki", "1G" and the like, in bytes.
to_bytes() {
    local number unit
    [[ $1 =~ ^([0-9]{1,15})(k|M|G|T|Ki|Mi|Gi|Ti)?$ ]] || return 1
    number=$((10#${BASH_REMATCH[1]}))
    unit=${BASH_REMATCH[2]}
    case $unit in
    k) number=$((number * 1000)) ;;
    M) number=$((number * 1000000)) ;;
    G) number=$((number * 1000000000)) ;;
    T) number=$((number * 1000000000000)) ;;
    Ki) number=$((number << 10)) ;;
    Mi) number=$((number << 20)) ;;
    Gi) number=$((number << 30)) ;;
    Ti) number=$((number << 40)) ;;
    esac
    printf '%s\n' "$number"
}

# The addresses are RFC 2544's for measuring network devices: no network routes them.
# shellcheck disable=SC2034 # used by the scripts that source this
SENDER_ADDR=198.18.0.1 RECEIVER_ADDR=198.18.0.2

# make_pair A B MTU: namespaces A and B, each with one end of a veth, named like its namespace.
#
# `tso off` at the sender: veth receives through NAPI and GRO only then, otherwise the receiver's whole input runs on
# the sender's core. The receiver polls in a kernel thread, as if it were another host. One queue, so that
# both senders use the same.
make_pair() {
    local a=$1 b=$2 mtu=$3 ns queues="numtxqueues 1 numrxqueues 1"
    for ns in "$a" "$b"; do
        ip netns add "$ns"
        ip netns exec "$ns" sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
        ip -n "$ns" link set lo up
    done
    # shellcheck disable=SC2086 # several words
    ip link add "$a" netns "$a" mtu "$mtu" $queues type veth peer name "$b" netns "$b" mtu "$mtu" $queues
    ip -n "$a" address add "$SENDER_ADDR/24" dev "$a"
    ip -n "$b" address add "$RECEIVER_ADDR/24" dev "$b"
    ip netns exec "$a" ethtool -K "$a" tso off >/dev/null
    ip netns exec "$b" ethtool -K "$b" gro on >/dev/null
    ip -n "$a" link set "$a" up
    ip -n "$b" link set "$b" up
    ip netns exec "$b" sh -c "echo 1 > /sys/class/net/$b/threaded"
}

# shellcheck disable=SC2034 # used by the scripts that source this
SENDER_ADDR_V6=fd00::1 RECEIVER_ADDR_V6=fd00::2

# make_impaired_pair NAME MTU: namespaces NAME-a and NAME-b as above, and NAME-m between them with one end of a veth to
# each, NAME-n and NAME-f, for a link to run between. Everything is up, and nobody has an address yet.
#
# What crosses is what would be on a wire: both hosts make whole checksums and cut their segments themselves, and nothing
# in the middle joins any.
make_impaired_pair() {
    local name=$1 mtu=$2 side port ns queues="numtxqueues 1 numrxqueues 1"
    for side in a b m; do
        ns=$name-$side
        ip netns add "$ns"
        ip netns exec "$ns" sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
        ip -n "$ns" link set lo up
    done
    for side in a b; do
        if [ "$side" = a ]; then port=$name-n; else port=$name-f; fi
        ns=$name-$side
        # shellcheck disable=SC2086 # several words
        ip link add "$ns" netns "$ns" mtu "$mtu" $queues type veth peer name "$port" netns "$name-m" mtu "$mtu" $queues
        ip netns exec "$ns" ethtool -K "$ns" tx off tso off >/dev/null
        ip netns exec "$name-m" ethtool -K "$port" tx off tso off gro off lro off >/dev/null
    done
    ip netns exec "$name-b" ethtool -K "$name-b" gro on >/dev/null
    ip -n "$name-m" link set "$name-n" up
    ip -n "$name-m" link set "$name-f" up
    ip -n "$name-a" link set "$name-a" up
    ip -n "$name-b" link set "$name-b" up
    ip netns exec "$name-b" sh -c "echo 1 > /sys/class/net/$name-b/threaded"
}

# address_pair NAME: gives both hosts of a pair their addresses, IPv4 and IPv6, where they have none.
address_pair() {
    local ns addr addr_v6
    for ns in "$1-a" "$1-b"; do
        if [ "$ns" = "$1-a" ]; then addr=$SENDER_ADDR addr_v6=$SENDER_ADDR_V6; else addr=$RECEIVER_ADDR addr_v6=$RECEIVER_ADDR_V6; fi
        ip -n "$ns" address replace "$addr/24" dev "$ns"
        # A link with an MTU below 1280 has no IPv6.
        if ip netns exec "$ns" sh -c "cd /proc/sys/net/ipv6/conf/$ns && echo 0 > accept_dad && echo 0 > disable_ipv6" 2>/dev/null; then
            ip -n "$ns" address replace "$addr_v6/64" dev "$ns" nodad
        fi
    done
}

# Removes a namespace of ours; what still runs inside is ended first.
remove_namespace() {
    local pid
    for pid in $(ip netns pids "$1" 2>/dev/null); do
        kill -9 "$pid" 2>/dev/null || true
    done
    ip netns del "$1" 2>/dev/null || true
}

# The ids of the kernel threads that poll an interface.
napi_threads() {
    local comm name
    for comm in /proc/[0-9]*/comm; do
        # A process that has just ended has no name any more.
        name=$(cat "$comm" 2>/dev/null) || continue
        case $name in "napi/$1-"*) basename "$(dirname "$comm")" ;; esac
    done
}

# All that a sender could change about an interface and not put back; no counters.
interface_state() {
    local ns=$1 link=$2
    ip -n "$ns" -d link show dev "$link"
    ip -n "$ns" address show dev "$link"
    ip -n "$ns" route show table all dev "$link"
    ip -n "$ns" neigh show dev "$link" | grep -E 'PERMANENT|NOARP|managed|extern_learn' || true
    ip netns exec "$ns" tc qdisc show dev "$link"
    ip netns exec "$ns" ethtool -k "$link"
    ip netns exec "$ns" sh -c "cd /sys/class/net/$link && grep -H . threaded gro_flush_timeout napi_defer_hard_irqs" || true
}
