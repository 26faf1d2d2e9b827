//! What an interface is like, before and after.

use std::fmt;
use std::io;

use serde_json::Value;

use crate::{Namespace, Scratch};

/// The XDP program on a link: its attachment as `ip -d -j link` tells it, or `None`.
pub fn xdp_program(namespace: &Namespace, link: &str) -> io::Result<Option<Value>> {
    let links = json(&namespace.ip(&format!("-d -j link show dev {link}"))?)?;
    let xdp = links.pointer("/0/xdp").cloned();
    // Some versions print {"mode":0} or an empty object where there is none.
    Ok(xdp.filter(|xdp| xdp.get("prog").is_some() || xdp.get("attached").is_some()))
}

/// Fails when the link carries an XDP program.
///
/// # Panics
/// Then, and when the link cannot be looked at.
#[track_caller]
pub fn assert_no_xdp_program(namespace: &Namespace, link: &str) {
    match xdp_program(namespace, link) {
        Ok(None) => {}
        Ok(Some(program)) => panic!("an XDP program is left on {link} in {}: {program}", namespace.name()),
        Err(e) => panic!("cannot look at {link} in {}: {e}", namespace.name()),
    }
}

/// Puts an XDP program of somebody else's on a link: it passes everything, and is called `xdp_pass_all`.
///
/// # Errors
/// When `clang` is missing, or the kernel refuses it.
pub fn attach_foreign_program(namespace: &Namespace, link: &str, scratch: &Scratch) -> io::Result<()> {
    // XDP_PASS is 2; the license section is what `ip` asks for.
    const SOURCE: &str = r#"
        __attribute__((section("xdp"), used)) int xdp_pass_all(void *context) { return 2; }
        char terms[] __attribute__((section("license"), used)) = "GPL";
    "#;
    let (source, object) = (scratch.file("pass.c"), scratch.file("pass.o"));
    std::fs::write(&source, SOURCE)?;
    let (source, object) = (source.display(), object.display());
    namespace.shell(&format!("clang -O2 -g -target bpf -c {source} -o {object}"))?;
    namespace.ip(&format!("link set dev {link} xdpdrv object {object} section xdp")).map(drop)
}

fn json(text: &str) -> io::Result<Value> {
    serde_json::from_str(text).map_err(|e| io::Error::other(format!("ip printed no JSON ({e}): {text}")))
}

/// All that a sender could have changed about an interface and not put back: link attributes, XDP program, addresses,
/// routes, queueing, offload features, channels, NAPI settings, and neighbour entries that outlive their use.
///
/// Counters are left out, and neighbours that the kernel learned in passing: those it forgets by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    link: String,
    lines: Vec<String>,
}

impl InterfaceState {
    /// What `link` in `namespace` is like now.
    pub fn capture(namespace: &Namespace, link: &str) -> io::Result<Self> {
        let mut lines = Vec::new();
        let mut add = |what: &str, text: &str| {
            lines.extend(text.lines().map(|line| format!("{what}: {}", line.trim_end())));
        };
        add("link", &fields(&json(&namespace.ip(&format!("-d -j link show dev {link}"))?)?));
        add("address", &fields(&json(&namespace.ip(&format!("-j address show dev {link}"))?)?));
        add("route", &namespace.ip(&format!("route show table all dev {link}"))?);
        add("neighbour", &lasting_neighbours(&namespace.ip(&format!("neigh show dev {link}"))?));
        add("qdisc", &namespace.shell(&format!("tc qdisc show dev {link}"))?);
        add("feature", &namespace.shell(&format!("ethtool -k {link}"))?);
        add("channels", &namespace.shell(&format!("ethtool -l {link} 2>&1 || true"))?);
        add(
            "napi",
            &namespace.shell(&format!(
                "cd /sys/class/net/{link} && grep -H . threaded gro_flush_timeout napi_defer_hard_irqs 2>/dev/null || true"
            ))?,
        );
        Ok(Self { link: link.to_owned(), lines })
    }

    /// The lines that differ, each marked with `-` (was) or `+` (is).
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let gone = self.lines.iter().filter(|line| !now.lines.contains(line)).map(|line| format!("- {line}"));
        let new = now.lines.iter().filter(|line| !self.lines.contains(line)).map(|line| format!("+ {line}"));
        gone.chain(new).collect()
    }

    /// Fails unless the interface is now as it was then.
    ///
    /// # Panics
    /// Then, with what differs.
    #[track_caller]
    pub fn assert_restored(&self, namespace: &Namespace) {
        match Self::capture(namespace, &self.link) {
            Ok(now) if now == *self => {}
            Ok(now) => panic!("{} was left changed:\n{}", self.link, self.differences(&now).join("\n")),
            Err(e) => panic!("cannot look at {}: {e}", self.link),
        }
    }
}

impl fmt::Display for InterfaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// One line a leaf, `path = value`, so that a difference names itself.
fn fields(value: &Value) -> String {
    fn walk(path: &str, value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                if !matches!(key.as_str(), "stats" | "stats64") {
                    walk(&format!("{path}/{key}"), value, out);
                }
            }),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, item)| walk(&format!("{path}/{i}"), item, out));
            }
            leaf => out.push(format!("{path} = {leaf}")),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out.join("\n")
}

/// The entries that nothing but their maker removes.
fn lasting_neighbours(neighbours: &str) -> String {
    let lasting = |line: &&str| {
        let mut words = line.split_whitespace();
        words.any(|word| matches!(word, "PERMANENT" | "NOARP" | "managed" | "extern_learn"))
    };
    neighbours.lines().filter(lasting).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pair, require_root};

    #[test]
    fn a_change_is_seen_and_named_and_its_reversal_too() {
        require_root!();
        let pair = Pair::builder().build().unwrap();
        let (namespace, link) = (&pair.sender, pair.sender_link.as_str());
        let before = InterfaceState::capture(namespace, link).unwrap();
        before.assert_restored(namespace);
        assert_no_xdp_program(namespace, link);

        for (change, revert, word) in [
            ("ip link set LINK mtu 1400", "ip link set LINK mtu 1500", "mtu"),
            ("ethtool -K LINK gro on", "ethtool -K LINK gro off", "generic-receive-offload"),
            ("ip address add 198.18.5.1/24 dev LINK", "ip address del 198.18.5.1/24 dev LINK", "198.18.5.1"),
            (
                "ip neigh add 198.18.0.77 lladdr 02:00:00:00:00:77 nud permanent dev LINK",
                "ip neigh del 198.18.0.77 dev LINK",
                "198.18.0.77",
            ),
        ] {
            namespace.shell(&change.replace("LINK", link)).unwrap();
            let changed = before.differences(&InterfaceState::capture(namespace, link).unwrap()).join("\n");
            assert!(changed.contains(word), "{change}: {changed:?}");
            namespace.shell(&revert.replace("LINK", link)).unwrap();
            before.assert_restored(namespace);
        }
    }

    #[test]
    fn a_program_is_seen_until_it_is_gone() {
        require_root!();
        let (pair, scratch) = (Pair::builder().build().unwrap(), Scratch::new().unwrap());
        let (namespace, link) = (&pair.sender, pair.sender_link.as_str());
        let before = InterfaceState::capture(namespace, link).unwrap();
        attach_foreign_program(namespace, link, &scratch).unwrap();
        let program = xdp_program(namespace, link).unwrap().expect("a program on the link");
        assert_eq!(program["prog"]["name"], "xdp_pass_all");
        assert_ne!(InterfaceState::capture(namespace, link).unwrap(), before);
        namespace.ip(&format!("link set dev {link} xdp off")).unwrap();
        assert_no_xdp_program(namespace, link);
        before.assert_restored(namespace);
    }

    #[test]
    fn traffic_alone_changes_nothing() {
        require_root!();
        let pair = Pair::builder().build().unwrap();
        let before = InterfaceState::capture(&pair.sender, &pair.sender_link).unwrap();
        let bystander = crate::Bystander::start(&pair).unwrap();
        bystander.assert_alive();
        bystander.finish();
        before.assert_restored(&pair.sender);
    }
}
