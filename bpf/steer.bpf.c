// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Steering: the frames of our TCP flows go to our AF_XDP sockets, every other frame to the kernel, untouched.
 *
 * A frame is ours when it is TCP over IPv4 or IPv6 between a local and a remote endpoint that user space has put
 * into `flows`, or to an endpoint in `listeners`, and in their VLAN; or when it is an ICMP error that quotes what
 * one of these sent. It is redirected to the socket of the queue it came in by. A queue without a socket of ours
 * drops our frames: the kernel knows none of our connections and would reset them.
 *
 * Fragments pass: only the first one has ports, and the kernel reassembles what nobody else can.
 *
 * Each frame is counted once, by what became of it.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100 /* IEEE 802.1Q */
#define ETHERTYPE_QINQ 0x88a8 /* IEEE 802.1ad */
#define VLAN_TAGS 2
#define VLAN_ID 0x0fff

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_ICMPV6 58

/* IPv6 extension headers, RFC 8200 4. Those that are not read (ESP, AH, ...) pass as what is not TCP. */
#define EXTENSION_HOP_BY_HOP 0
#define EXTENSION_ROUTING 43
#define EXTENSION_FRAGMENT 44
#define EXTENSION_DESTINATION 60
/* As many of them are read, and as many bytes in all; longer chains pass. */
#define EXTENSIONS 4
#define EXTENSIONS_LEN 128

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

struct ipv6 {
	__be32 version_class_label;
	__be16 payload_len;
	__u8 next_header;
	__u8 hop_limit;
	__be32 source[4];
	__be32 destination[4];
} __attribute__((packed));

struct extension {
	__u8 next_header;
	__u8 len; /* In units of eight bytes, the first eight not counted. */
	__u8 type;
	__u8 segments_left; /* Of a routing header. */
	__u8 data[4];
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

/* RFC 4443 2.1. */
#define ICMPV6_UNREACHABLE 1
#define ICMPV6_PACKET_TOO_BIG 2
#define ICMPV6_TIME_EXCEEDED 3
#define ICMPV6_PARAMETER_PROBLEM 4

/* An IPv4 address is the first word, and zeroes. */
struct address {
	__be32 words[4];
};

/*
 * The family keeps IPv4 addresses apart from the IPv6 addresses of the same bytes: somebody can send from and to
 * these, too. It is 4 or 6.
 */
struct flow {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
	__u32 family;
};

/* With a local address of zeroes, all addresses of the family. */
struct listener {
	struct address local;
	__be16 port;
	__u16 family;
};

/*
 * The values: the VLANs that a flow lives in, as the identifiers of its tags, the outer one in the upper half; the
 * only one is the inner one. Zero: it is not tagged.
 */
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

/* What becomes of a frame. The first three go to a socket, UNOWNED is dropped, all others pass. */
enum outcome {
	STEERED, /* a segment of a flow */
	LISTENED, /* a segment to a listener, of no flow in the map */
	QUOTED_OURS, /* an ICMP error about one of ours */
	UNOWNED, /* ours, but by a queue without a socket */
	PASSED, /* nothing of ours */
	FRAGMENTED, /* a fragment, of whatever */
	CHAINED, /* behind more extension headers than are read */
	OTHER_VLAN, /* one of ours by its addresses and ports, but in another VLAN */
	MALFORMED, /* headers cut short or impossible */
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

static __always_inline int pass(__u32 outcome)
{
	return count(outcome, XDP_PASS);
}

static __always_inline int steer(struct xdp_md *ctx, __u32 outcome)
{
	int action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);

	return count(action == XDP_REDIRECT ? outcome : UNOWNED, action);
}

/*
 * Whether a frame with these tags is in the VLANs that are wanted. A device that takes tags off as it receives
 * takes the outer one, or all, and does not tell; what is then left must fit.
 */
static __always_inline bool in_vlans(__u32 seen, __u32 wanted)
{
	return seen == 0 || seen == wanted || seen == (wanted & 0xffff);
}

static __always_inline __u32 *find_listener(const struct flow *flow)
{
	struct listener key = { .local = flow->local, .port = flow->local_port, .family = flow->family };
	__u32 *wanted = bpf_map_lookup_elem(&listeners, &key);

	if (wanted)
		return wanted;
	key.local = (struct address){};
	return bpf_map_lookup_elem(&listeners, &key);
}

/* Steers the frame if `flow` is one of ours or a listener's; these outcomes say which, when it does. */
static __always_inline int judge(struct xdp_md *ctx, const struct flow *flow, __u32 vlans, __u32 as_flow,
				 __u32 as_listener)
{
	__u32 outcome = as_flow;
	__u32 *wanted = bpf_map_lookup_elem(&flows, flow);

	if (!wanted) {
		outcome = as_listener;
		wanted = find_listener(flow);
	}
	if (!wanted)
		return pass(PASSED);
	if (!in_vlans(vlans, *wanted))
		return pass(OTHER_VLAN);
	return steer(ctx, outcome);
}

/* `flow` has its addresses, the packet's destination being the local one. `len` bytes are left of the packet. */
static __always_inline int on_tcp(struct xdp_md *ctx, struct flow *flow, __u32 vlans, void *payload, __u32 len)
{
	void *end = (void *)(long)ctx->data_end;
	struct tcp *tcp = payload;
	__u32 header_len;

	if ((void *)(tcp + 1) > end)
		return pass(MALFORMED);
	header_len = (tcp->data_offset >> 4) * 4;
	if (header_len < sizeof(*tcp) || header_len > len)
		return pass(MALFORMED);

	flow->local_port = tcp->ports.destination;
	flow->remote_port = tcp->ports.source;
	return judge(ctx, flow, vlans, STEERED, LISTENED);
}

/* `flow` has its addresses, the quoted packet's source being the local one: we sent it. */
static __always_inline int on_quoted_tcp(struct xdp_md *ctx, struct flow *flow, __u32 vlans, void *payload)
{
	void *end = (void *)(long)ctx->data_end;
	struct ports *ports = payload;

	if (payload + QUOTED > end)
		return pass(MALFORMED);
	flow->local_port = ports->source;
	flow->remote_port = ports->destination;
	return judge(ctx, flow, vlans, QUOTED_OURS, QUOTED_OURS);
}

/* The header's length in bytes, options included; 0 when it cannot be one. */
static __always_inline __u32 ipv4_header_len(const struct ipv4 *ip)
{
	__u32 len = (ip->version_ihl & 0x0f) * 4;

	return (ip->version_ihl >> 4) == 4 && len >= sizeof(*ip) ? len : 0;
}

static __always_inline int on_icmp(struct xdp_md *ctx, __u32 vlans, void *payload)
{
	void *end = (void *)(long)ctx->data_end;
	struct flow flow = { .family = 4 };
	struct icmp *icmp = payload;
	struct ipv4 *quoted;
	__u32 header_len;

	if ((void *)(icmp + 1) > end)
		return pass(MALFORMED);
	if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED &&
	    icmp->type != ICMP_PARAMETER_PROBLEM)
		return pass(PASSED);

	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > end)
		return pass(MALFORMED);
	header_len = ipv4_header_len(quoted);
	if (!header_len)
		return pass(MALFORMED);
	if (quoted->protocol != PROTOCOL_TCP || (quoted->fragment & bpf_htons(FRAGMENT_OFFSET)))
		return pass(PASSED);

	flow.local.words[0] = quoted->source;
	flow.remote.words[0] = quoted->destination;
	return on_quoted_tcp(ctx, &flow, vlans, (void *)quoted + header_len);
}

static __always_inline int on_ipv4(struct xdp_md *ctx, __u32 vlans, void *start)
{
	void *end = (void *)(long)ctx->data_end;
	struct flow flow = { .family = 4 };
	struct ipv4 *ip = start;
	__u32 header_len, total_len;

	if ((void *)(ip + 1) > end)
		return pass(MALFORMED);
	header_len = ipv4_header_len(ip);
	total_len = bpf_ntohs(ip->total_len);
	if (!header_len || total_len < header_len || start + header_len > end)
		return pass(MALFORMED);
	if (ip->fragment & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET))
		return pass(FRAGMENTED);

	switch (ip->protocol) {
	case PROTOCOL_TCP:
		flow.local.words[0] = ip->destination;
		flow.remote.words[0] = ip->source;
		return on_tcp(ctx, &flow, vlans, start + header_len, total_len - header_len);
	case PROTOCOL_ICMP:
		return on_icmp(ctx, vlans, start + header_len);
	default:
		return pass(PASSED);
	}
}

static __always_inline bool is_ipv6(const struct ipv6 *ip)
{
	return (ip->version_class_label & bpf_htonl(0xf0000000)) == bpf_htonl(0x60000000);
}

static __always_inline int on_icmpv6(struct xdp_md *ctx, __u32 vlans, void *payload)
{
	void *end = (void *)(long)ctx->data_end;
	struct flow flow = { .family = 6 };
	struct icmp *icmp = payload;
	struct ipv6 *quoted;

	if ((void *)(icmp + 1) > end)
		return pass(MALFORMED);
	if (icmp->type < ICMPV6_UNREACHABLE || icmp->type > ICMPV6_PARAMETER_PROBLEM)
		return pass(PASSED);

	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > end || !is_ipv6(quoted))
		return pass(MALFORMED);
	/* Our segments have no extension headers. */
	if (quoted->next_header != PROTOCOL_TCP)
		return pass(PASSED);

	__builtin_memcpy(&flow.local, quoted->source, sizeof(flow.local));
	__builtin_memcpy(&flow.remote, quoted->destination, sizeof(flow.remote));
	return on_quoted_tcp(ctx, &flow, vlans, quoted + 1);
}

static __always_inline int on_ipv6(struct xdp_md *ctx, __u32 vlans, void *start)
{
	void *end = (void *)(long)ctx->data_end;
	struct flow flow = { .family = 6 };
	struct ipv6 *ip = start;
	void *upper = ip + 1;
	struct extension *extension;
	__u32 payload_len, read = 0;
	__u8 protocol;

	if (upper > end || !is_ipv6(ip))
		return pass(MALFORMED);
	payload_len = bpf_ntohs(ip->payload_len);
	protocol = ip->next_header;

#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		if (protocol != EXTENSION_HOP_BY_HOP && protocol != EXTENSION_ROUTING &&
		    protocol != EXTENSION_DESTINATION)
			break;
		extension = upper + read;
		if ((void *)(extension + 1) > end)
			return pass(MALFORMED);
		/* Not there yet: another node is its next destination, even if that is we. */
		if (protocol == EXTENSION_ROUTING && extension->segments_left)
			return pass(PASSED);
		protocol = extension->next_header;
		read += (extension->len + 1) * 8;
		if (read > EXTENSIONS_LEN)
			return pass(CHAINED);
	}

	switch (protocol) {
	case PROTOCOL_TCP:
		if (payload_len < read)
			return pass(MALFORMED);
		__builtin_memcpy(&flow.local, ip->destination, sizeof(flow.local));
		__builtin_memcpy(&flow.remote, ip->source, sizeof(flow.remote));
		return on_tcp(ctx, &flow, vlans, upper + read, payload_len - read);
	case PROTOCOL_ICMPV6:
		return on_icmpv6(ctx, vlans, upper + read);
	case EXTENSION_FRAGMENT:
		return pass(FRAGMENTED);
	case EXTENSION_HOP_BY_HOP:
	case EXTENSION_ROUTING:
	case EXTENSION_DESTINATION:
		return pass(CHAINED);
	default:
		return pass(PASSED);
	}
}

SEC("xdp.frags")
int xsend_steer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	void *next = (void *)(long)ctx->data;
	struct ethernet *ethernet = next;
	__u32 vlans = 0;
	__be16 type;

	next = ethernet + 1;
	if (next > end)
		return pass(MALFORMED);
	type = ethernet->type;

#pragma unroll
	for (int i = 0; i < VLAN_TAGS; i++) {
		struct vlan *vlan = next;
		__u32 id;

		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_QINQ))
			break;
		next = vlan + 1;
		if (next > end)
			return pass(MALFORMED);
		type = vlan->type;
		/* Identifier 0 only gives the frame a priority, IEEE 802.1Q 9.6. */
		id = bpf_ntohs(vlan->tag) & VLAN_ID;
		if (id)
			vlans = vlans << 16 | id;
	}

	switch (type) {
	case bpf_htons(ETHERTYPE_IPV4):
		return on_ipv4(ctx, vlans, next);
	case bpf_htons(ETHERTYPE_IPV6):
		return on_ipv6(ctx, vlans, next);
	default:
		return pass(PASSED);
	}
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
