//! The kernel's numbers, with the headers that define them. Only those used; typed as they stand in the messages.

/// <linux/rtnetlink.h>: messages, groups, flags and attributes.
pub mod rt {
    pub const NEWLINK: u16 = 16;
    pub const DELLINK: u16 = 17;
    pub const GETLINK: u16 = 18;
    pub const NEWADDR: u16 = 20;
    pub const DELADDR: u16 = 21;
    pub const GETADDR: u16 = 22;
    pub const NEWROUTE: u16 = 24;
    pub const DELROUTE: u16 = 25;
    pub const GETROUTE: u16 = 26;
    pub const NEWNEIGH: u16 = 28;
    pub const DELNEIGH: u16 = 29;
    pub const GETNEIGH: u16 = 30;

    pub const GROUP_LINK: u32 = 1;
    pub const GROUP_NEIGH: u32 = 3;
    pub const GROUP_IPV4_ADDRESS: u32 = 5;
    pub const GROUP_IPV4_ROUTE: u32 = 7;
    pub const GROUP_IPV6_ADDRESS: u32 = 9;
    pub const GROUP_IPV6_ROUTE: u32 = 11;

    pub const EXT_FILTER_SKIP_STATS: u32 = 1 << 3;

    /// Answer with the route that matched instead of the decision made from it.
    pub const F_FIB_MATCH: u32 = 0x2000;

    pub const TYPE_UNICAST: u8 = 1;
    pub const TYPE_LOCAL: u8 = 2;
    pub const TYPE_BROADCAST: u8 = 3;
    pub const TYPE_ANYCAST: u8 = 4;
    pub const TYPE_MULTICAST: u8 = 5;

    pub const A_DST: u16 = 1;
    pub const A_SRC: u16 = 2;
    pub const A_OIF: u16 = 4;
    pub const A_GATEWAY: u16 = 5;
    pub const A_PREFSRC: u16 = 7;
    pub const A_METRICS: u16 = 8;
    pub const A_VIA: u16 = 18;
    pub const A_ENCAP_TYPE: u16 = 21;

    pub const METRIC_MTU: u16 = 2;
}

/// <linux/if_link.h>, <linux/if.h> and <linux/if_arp.h>.
pub mod link {
    pub const ADDRESS: u16 = 1;
    pub const IFNAME: u16 = 3;
    pub const MTU: u16 = 4;
    pub const LINK: u16 = 5;
    pub const MASTER: u16 = 10;
    pub const LINKINFO: u16 = 18;
    pub const AF_SPEC: u16 = 26;
    pub const EXT_MASK: u16 = 29;
    pub const NUM_TX_QUEUES: u16 = 31;
    pub const NUM_RX_QUEUES: u16 = 32;
    pub const LINK_NETNSID: u16 = 37;
    pub const XDP: u16 = 43;
    pub const PARENT_DEV_NAME: u16 = 56;
    pub const PARENT_DEV_BUS_NAME: u16 = 57;

    pub const INFO_KIND: u16 = 1;
    pub const INFO_DATA: u16 = 2;

    pub const INET6_CONF: u16 = 2;
    /// DEVCONF_MTU6 of <linux/ipv6.h>: which of the settings, of four bytes each.
    pub const INET6_CONF_MTU: usize = 2;

    pub const VLAN_ID: u16 = 1;
    pub const VLAN_PROTOCOL: u16 = 5;

    pub const XDP_DRV_PROG_ID: u16 = 5;
    pub const XDP_SKB_PROG_ID: u16 = 6;
    pub const XDP_HW_PROG_ID: u16 = 7;

    pub const FLAG_UP: u32 = 1 << 0;
    pub const FLAG_LOWER_UP: u32 = 1 << 16;

    pub const ARPHRD_ETHER: u16 = 1;
    pub const ARPHRD_LOOPBACK: u16 = 772;

    /// The longest interface name, the final zero not counted.
    pub const NAME_MAX: usize = 15;
}

/// <linux/if_addr.h>.
pub mod addr {
    pub const ADDRESS: u16 = 1;
    pub const LOCAL: u16 = 2;
}

/// <linux/neighbour.h>.
pub mod neigh {
    pub const DST: u16 = 1;
    pub const LLADDR: u16 = 2;
    pub const FLAGS_EXT: u16 = 15;

    pub const STATE_INCOMPLETE: u16 = 0x01;
    pub const STATE_REACHABLE: u16 = 0x02;
    pub const STATE_STALE: u16 = 0x04;
    pub const STATE_DELAY: u16 = 0x08;
    pub const STATE_PROBE: u16 = 0x10;
    pub const STATE_FAILED: u16 = 0x20;
    pub const STATE_NOARP: u16 = 0x40;
    pub const STATE_PERMANENT: u16 = 0x80;

    pub const FLAG_USE: u8 = 1 << 0;
    pub const FLAG_EXT_LEARNED: u8 = 1 << 4;
    pub const FLAG_ROUTER: u8 = 1 << 7;

    pub const EXT_MANAGED: u32 = 1 << 0;
    pub const EXT_VALIDATED: u32 = 1 << 2;
}

/// <linux/netlink.h>: attributes of an extended acknowledgement.
pub mod ack {
    pub const MESSAGE: u16 = 1;
}

/// <linux/genetlink.h>.
pub mod genl {
    pub const ID_CTRL: u16 = 16;
    pub const CTRL_GETFAMILY: u8 = 3;
    pub const CTRL_FAMILY_ID: u16 = 1;
    pub const CTRL_FAMILY_NAME: u16 = 2;
    pub const CTRL_MCAST_GROUPS: u16 = 7;
    pub const CTRL_MCAST_NAME: u16 = 1;
    pub const CTRL_MCAST_ID: u16 = 2;
}

/// <linux/ethtool_netlink.h>.
pub mod ethtool {
    pub const FAMILY: &str = "ethtool";
    /// The group that is told of changed settings.
    pub const GROUP_MONITOR: &str = "monitor";

    pub const FEATURES_GET: u8 = 11;
    pub const RINGS_GET: u8 = 15;
    pub const CHANNELS_GET: u8 = 17;
    /// A notification; its number counts what the kernel sends, not what it is asked.
    pub const CHANNELS_NTF: u8 = 19;

    /// The header's attribute number is the same in every request.
    pub const HEADER: u16 = 1;
    pub const HEADER_DEV_INDEX: u16 = 1;

    pub const FEATURES_ACTIVE: u16 = 4;
    pub const BITSET_BITS: u16 = 3;
    pub const BITSET_BITS_BIT: u16 = 1;
    pub const BITSET_BIT_NAME: u16 = 2;

    pub const RINGS_RX_MAX: u16 = 2;
    pub const RINGS_TX_MAX: u16 = 5;
    pub const RINGS_RX: u16 = 6;
    pub const RINGS_TX: u16 = 9;

    pub const CHANNELS_RX_MAX: u16 = 2;
    pub const CHANNELS_TX_MAX: u16 = 3;
    pub const CHANNELS_COMBINED_MAX: u16 = 5;
    pub const CHANNELS_RX: u16 = 6;
    pub const CHANNELS_TX: u16 = 7;
    pub const CHANNELS_COMBINED: u16 = 9;
}

/// <linux/netdev.h>.
pub mod netdev {
    pub const FAMILY: &str = "netdev";

    pub const DEV_GET: u8 = 1;
    pub const QUEUE_GET: u8 = 10;

    pub const QUEUE_IFINDEX: u16 = 2;
    pub const QUEUE_TYPE: u16 = 3;
    pub const QUEUE_TYPE_RX: u32 = 0;
    pub const QUEUE_TYPE_TX: u32 = 1;

    pub const IFINDEX: u16 = 1;
    pub const XDP_FEATURES: u16 = 3;
    pub const XDP_ZC_MAX_SEGS: u16 = 4;
    pub const XSK_FEATURES: u16 = 6;

    pub const XDP_BASIC: u64 = 1 << 0;
    pub const XDP_REDIRECT: u64 = 1 << 1;
    pub const XDP_NDO_XMIT: u64 = 1 << 2;
    pub const XDP_XSK_ZEROCOPY: u64 = 1 << 3;
    pub const XDP_HW_OFFLOAD: u64 = 1 << 4;
    pub const XDP_RX_SG: u64 = 1 << 5;
    pub const XDP_NDO_XMIT_SG: u64 = 1 << 6;

    pub const XSK_TX_TIMESTAMP: u64 = 1 << 0;
    pub const XSK_TX_CHECKSUM: u64 = 1 << 1;
}
