// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Steering: the frames of our TCP flows go to our AF_XDP sockets, every other frame to the kernel, untouched.
 *
 * A frame is ours when it is TCP over IPv4 between a local and a remote endpoint that user space has put into
 * `flows`, or to an endpoint in `listeners`, or when it is an ICMP error that quotes one of our flows. It is
 * redirected to the socket of the queue it came in by. A queue without a socket of ours drops our frames: the
 * kernel knows none of our connections and would reset them.
 *
 * Fragments pass: only the first one has ports, and the kernel reassembles what nobody else can.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_VLAN 0x8100 /* IEEE 802.1Q */
#define ETHERTYPE_QINQ 0x88a8 /* IEEE 802.1ad */
#define VLAN_TAGS 2

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6

#define FRAGMENT_MORE 0x2000
#define FRAGMENT_OFFSET 0x1fff

/* The headers, as far as they are looked at. Nothing in a frame is aligned. */
struct ethernet {
	__u8 addresses[12];
	__be16 type;
} __attribute__((packed));

struct vlan {
	__be16 tag;
	__be16 type;
} __attribute__((packed));

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_len;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 check;
	__be32 source;
	__be32 destination;
} __attribute__((packed));

struct ports {
	__be16 source;
	__be16 destination;
} __attribute__((packed));

struct tcp {
	struct ports ports;
	__be32 seq;
	__be32 ack;
	__u8 data_offset;
	__u8 flags;
	__be16 window;
	__be16 check;
	__be16 urgent;
} __attribute__((packed));

struct icmp {
	__u8 type;
	__u8 code;
	__be16 check;
	__be32 rest;
} __attribute__((packed));

/* What an ICMP error quotes of a transport header at least, RFC 792. */
#define QUOTED 8

#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

/* An IPv4 address is kept as ::ffff:a.b.c.d, RFC 4291 2.5.5.2. */
struct address {
	__be32 words[4];
};

struct flow {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
};

struct listener {
	struct address local;
	__be16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, __u32);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct listener);
	__type(value, __u32);
} listeners SEC(".maps");

/* One entry a queue; user space sets the number before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

enum outcome {
	STEERED,
	PASSED,
	MALFORMED,
	UNOWNED,
	OUTCOMES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOMES);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 outcome, int action)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &outcome);

	/* Per processor, and XDP is not preempted by itself: no atomic is needed. */
	if (value)
		*value += 1;
	return action;
}

static __always_inline int steer(struct xdp_md *ctx)
{
	int action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);

	return count(action == XDP_REDIRECT ? STEERED : UNOWNED, action);
}

static __always_inline void map_address(struct address *to, __be32 from)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = bpf_htonl(0xffff);
	to->words[3] = from;
}

static __always_inline bool is_our_flow(__be32 local, __be16 local_port, __be32 remote, __be16 remote_port)
{
	struct flow key = { .local_port = local_port, .remote_port = remote_port };

	map_address(&key.local, local);
	map_address(&key.remote, remote);
	return bpf_map_lookup_elem(&flows, &key) != NULL;
}

static __always_inline bool is_our_listener(__be32 local, __be16 port)
{
	struct listener key = { .port = port };

	map_address(&key.local, local);
	return bpf_map_lookup_elem(&listeners, &key) != NULL;
}

static __always_inline bool is_fragment(const struct ipv4 *ip)
{
	return ip->fragment & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET);
}

/* The header's length in bytes, options included; 0 when it cannot be one. */
static __always_inline __u32 ipv4_header_len(const struct ipv4 *ip)
{
	__u32 len = (ip->version_ihl & 0x0f) * 4;

	return (ip->version_ihl >> 4) == 4 && len >= sizeof(*ip) ? len : 0;
}

static __always_inline int on_tcp(struct xdp_md *ctx, const struct ipv4 *ip, void *payload, __u32 len)
{
	void *end = (void *)(long)ctx->data_end;
	struct tcp *tcp = payload;
	__u32 header_len;

	if ((void *)(tcp + 1) > end)
		return count(MALFORMED, XDP_PASS);
	header_len = (tcp->data_offset >> 4) * 4;
	if (header_len < sizeof(*tcp) || header_len > len)
		return count(MALFORMED, XDP_PASS);

	if (is_our_flow(ip->destination, tcp->ports.destination, ip->source, tcp->ports.source))
		return steer(ctx);
	if (is_our_listener(ip->destination, tcp->ports.destination))
		return steer(ctx);
	return count(PASSED, XDP_PASS);
}

/* The quoted packet was sent by us: its source is the local end. */
static __always_inline int on_icmp(struct xdp_md *ctx, void *payload)
{
	void *end = (void *)(long)ctx->data_end;
	struct icmp *icmp = payload;
	struct ipv4 *quoted;
	struct ports *ports;
	__u32 header_len;

	if ((void *)(icmp + 1) > end)
		return count(MALFORMED, XDP_PASS);
	if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED &&
	    icmp->type != ICMP_PARAMETER_PROBLEM)
		return count(PASSED, XDP_PASS);

	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > end)
		return count(MALFORMED, XDP_PASS);
	header_len = ipv4_header_len(quoted);
	if (!header_len)
		return count(MALFORMED, XDP_PASS);
	if (quoted->protocol != PROTOCOL_TCP || (quoted->fragment & bpf_htons(FRAGMENT_OFFSET)))
		return count(PASSED, XDP_PASS);

	ports = (void *)quoted + header_len;
	if ((void *)ports + QUOTED > end)
		return count(MALFORMED, XDP_PASS);
	if (is_our_flow(quoted->source, ports->source, quoted->destination, ports->destination))
		return steer(ctx);
	return count(PASSED, XDP_PASS);
}

static __always_inline int on_ipv4(struct xdp_md *ctx, void *start)
{
	void *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = start;
	__u32 header_len, total_len;

	if ((void *)(ip + 1) > end)
		return count(MALFORMED, XDP_PASS);
	header_len = ipv4_header_len(ip);
	total_len = bpf_ntohs(ip->total_len);
	if (!header_len || total_len < header_len || start + header_len > end)
		return count(MALFORMED, XDP_PASS);
	if (is_fragment(ip))
		return count(PASSED, XDP_PASS);

	switch (ip->protocol) {
	case PROTOCOL_TCP:
		return on_tcp(ctx, ip, start + header_len, total_len - header_len);
	case PROTOCOL_ICMP:
		return on_icmp(ctx, start + header_len);
	default:
		return count(PASSED, XDP_PASS);
	}
}

SEC("xdp.frags")
int xsend_steer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	void *next = (void *)(long)ctx->data;
	struct ethernet *ethernet = next;
	__be16 type;

	next = ethernet + 1;
	if (next > end)
		return count(MALFORMED, XDP_PASS);
	type = ethernet->type;

#pragma unroll
	for (int i = 0; i < VLAN_TAGS; i++) {
		struct vlan *vlan = next;

		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_QINQ))
			break;
		next = vlan + 1;
		if (next > end)
			return count(MALFORMED, XDP_PASS);
		type = vlan->type;
	}

	if (type == bpf_htons(ETHERTYPE_IPV4))
		return on_ipv4(ctx, next);
	return count(PASSED, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
