//! Who is where: MLX's host file and rank number, and the addresses in it.

use super::ports::MAX_CONNECTIONS;
use crate::{CommError, transport::check_size};
use std::{
    env,
    fs::File,
    io::Read,
    net::{SocketAddr, ToSocketAddrs},
    path::Path,
};

/// Longest host file that is read: 64 ranks with 16 long names each take a tenth of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Every rank's listening addresses, as text: a name is looked up only by the ranks that need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts(Vec<Vec<String>>);

impl Hosts {
    /// # Errors
    /// [`CommError::Setup`] unless there are 1 to 64 ranks, each with the same number of different addresses,
    /// 1 to 16.
    pub(super) fn new<A: AsRef<str>>(hosts: &[Vec<A>]) -> Result<Self, CommError> {
        check_size(hosts.len())?;
        let hosts: Vec<Vec<String>> =
            hosts.iter().map(|list| list.iter().map(|text| text.as_ref().to_owned()).collect()).collect();
        let connections = hosts[0].len();
        for (rank, list) in hosts.iter().enumerate() {
            if list.is_empty() || list.len() > MAX_CONNECTIONS {
                let count = list.len();
                return Err(setup(format!(
                    "rank {rank} has {count} addresses in the ring's hosts; 1 to {MAX_CONNECTIONS} are possible"
                )));
            }
            if list.len() != connections {
                return Err(setup(format!(
                    "rank 0 has {connections} addresses in the ring's hosts and rank {rank} has {}; \
                     all ranks need the same number, one per connection",
                    list.len()
                )));
            }
            for (index, text) in list.iter().enumerate() {
                split(text).map_err(|what| setup(format!("address {text:?} of rank {rank}: {what}")))?;
                if list[..index].contains(text) {
                    return Err(setup(format!(
                        "rank {rank} has the address {text} twice; each connection needs its own"
                    )));
                }
            }
        }
        Ok(Self(hosts))
    }

    /// Reads a host file: a JSON list with one list of `"address:port"` per rank.
    ///
    /// # Errors
    /// [`CommError::Setup`] when it cannot be read or is something else.
    fn read(path: &Path) -> Result<Self, CommError> {
        let shown = path.display();
        let mut text = String::new();
        let file = File::open(path).map_err(|error| setup(format!("MLX_HOSTFILE {shown}: {error}")))?;
        file.take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| setup(format!("MLX_HOSTFILE {shown}: {error}")))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(setup(format!("MLX_HOSTFILE {shown} is longer than {MAX_FILE_BYTES} bytes")));
        }
        Self::parse(&text).map_err(|error| match error {
            CommError::Setup { what } => setup(format!("MLX_HOSTFILE {shown}: {what}")),
            other => other,
        })
    }

    fn parse(text: &str) -> Result<Self, CommError> {
        let lists: Vec<Vec<String>> = serde_json::from_str(text).map_err(|error| {
            setup(format!(
                "{error}; it must be a JSON list with one list of \"address:port\" per rank, \
                 like [[\"10.0.0.1:32323\"], [\"10.0.0.2:32323\"]]"
            ))
        })?;
        Self::new(&lists)
    }

    pub(super) fn size(&self) -> usize {
        self.0.len()
    }

    pub(super) fn of(&self, rank: usize) -> &[String] {
        &self.0[rank]
    }

    /// Ranks that share this one's machine, by the host of their first address.
    pub(super) fn beside(&self, rank: usize) -> usize {
        let machine = |list: &Vec<String>| split(&list[0]).map(|(host, _)| host.to_owned()).ok();
        let own = machine(&self.0[rank]);
        self.0.iter().filter(|list| machine(list) == own).count()
    }
}

/// Reads `text` as a host file. For fuzzing: it must never panic.
///
/// # Errors
/// [`CommError::Setup`] for anything else.
pub fn fuzz_hostfile(text: &str) -> Result<(), CommError> {
    let hosts = Hosts::parse(text)?;
    assert!((0..hosts.size()).all(|rank| !hosts.of(rank).is_empty() && hosts.beside(rank) > 0));
    Ok(())
}

/// The hosts and the own rank, from MLX_HOSTFILE and MLX_RANK.
pub(super) fn from_env() -> Result<(Hosts, usize), CommError> {
    let variable = |name: &str| {
        env::var_os(name).ok_or_else(|| {
            setup(format!(
                "{name} is not set; start the ranks with a launcher, or set MLX_HOSTFILE and MLX_RANK"
            ))
        })
    };
    let hosts = Hosts::read(Path::new(&variable("MLX_HOSTFILE")?))?;
    let rank = variable("MLX_RANK")?;
    let number = rank.to_str().and_then(|text| text.trim().parse().ok());
    number
        .map(|rank| (hosts, rank))
        .ok_or_else(|| setup(format!("MLX_RANK is {rank:?} and must be a number from 0")))
}

/// The socket address of `text`. For a name, its first IPv4 address if it has one, because MLX knows no
/// other.
///
/// # Errors
/// [`CommError::Setup`] when it cannot be looked up.
pub(super) fn resolve(rank: usize, text: &str) -> Result<SocketAddr, CommError> {
    let failed = |what: String| setup(format!("address {text} of rank {rank}: {what}"));
    let (host, port) = split(text).map_err(|what| failed(what.into()))?;
    let mut found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| failed("this name has no address".into()))
}

/// Host and port of `host:port` or `[IPv6]:port`.
fn split(text: &str) -> Result<(&str, u16), &'static str> {
    const SHAPE: &str = "it must look like 10.0.0.1:32323, name:32323 or [fe80::1%en5]:32323";
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or(SHAPE)?,
        None => text.rsplit_once(':').ok_or(SHAPE)?,
    };
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '[') {
        return Err(SHAPE);
    }
    if !text.starts_with('[') && host.contains(':') {
        return Err("an IPv6 address needs brackets, like [fe80::1%en5]:32323");
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SHAPE);
    }
    match port.parse() {
        Ok(0) | Err(_) => Err("the port must be 1 to 65535"),
        Ok(port) => Ok((host, port)),
    }
}

fn setup(what: String) -> CommError {
    CommError::Setup { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn refusal(text: &str) -> String {
        Hosts::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_host_file_of_mlx() {
        let hosts =
            Hosts::parse(r#"[["127.0.0.1:32323", "127.0.0.1:32324"], ["mac.local:1", "[::1%lo0]:2"]]"#)
                .unwrap();
        assert_eq!(hosts.size(), 2);
        assert_eq!(hosts.of(1), ["mac.local:1", "[::1%lo0]:2"]);
        assert_eq!(hosts.beside(0), 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("{}", "must be a JSON list"),
            (r#"[{"ssh": "a", "ips": ["10.0.0.1"]}]"#, "one list of \"address:port\" per rank"),
            ("[]", "0 ranks; a group has 1 to 64"),
            ("[[]]", "rank 0 has 0 addresses"),
            (r#"[["a:1"], ["a:2", "a:3"]]"#, "rank 0 has 1 addresses in the ring's hosts and rank 1 has 2"),
            (r#"[["a:1", "a:1"]]"#, "rank 0 has the address a:1 twice"),
            (r#"[["10.0.0.1"]]"#, "address \"10.0.0.1\" of rank 0: it must look like"),
            (r#"[["10.0.0.1:"]]"#, "the port must be 1 to 65535"),
            (r#"[["10.0.0.1:0"]]"#, "the port must be 1 to 65535"),
            (r#"[["10.0.0.1:65536"]]"#, "the port must be 1 to 65535"),
            (r#"[["10.0.0.1:+7"]]"#, "it must look like"),
            (r#"[[":7"]]"#, "it must look like"),
            (r#"[["fe80::1:7"]]"#, "an IPv6 address needs brackets"),
            (r#"[["[fe80::1]"]]"#, "it must look like"),
            (r#"[["a b:7"]]"#, "it must look like"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    #[test]
    fn numbers_of_ranks_and_connections_are_bounded() {
        let ranks = |count| format!("[{}]", vec![r#"["a:1"]"#; count].join(","));
        assert!(Hosts::parse(&ranks(64)).is_ok());
        assert!(refusal(&ranks(65)).contains("65 ranks"));
        let list: Vec<String> = (1..=17).map(|port| format!("\"a:{port}\"")).collect();
        assert!(refusal(&format!("[[{}]]", list.join(","))).contains("17 addresses"));
    }

    #[test]
    fn names_and_numbers_are_resolved() {
        assert_eq!(resolve(0, "127.0.0.1:7").unwrap(), "127.0.0.1:7".parse().unwrap());
        assert_eq!(resolve(0, "localhost:7").unwrap(), "127.0.0.1:7".parse().unwrap());
        assert_eq!(resolve(0, "[::1]:7").unwrap(), "[::1]:7".parse().unwrap());
        let error = resolve(3, "no-such-host.invalid:7").unwrap_err().to_string();
        assert!(error.contains("address no-such-host.invalid:7 of rank 3"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,40}") {
            let _ = Hosts::parse(&text);
            let _ = split(&text);
        }

        #[test]
        fn nor_any_list_of_lists(lists in vec(vec("[\\[\\]:%a-f0-9. ]{0,14}", 0..4), 0..4)) {
            let text = serde_json::to_string(&lists).unwrap();
            if let Ok(hosts) = Hosts::parse(&text) {
                prop_assert_eq!(hosts.size(), lists.len());
                prop_assert!(hosts.beside(0) >= 1);
            }
        }
    }
}
