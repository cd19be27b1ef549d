//! The group that a launcher describes in the environment.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `POMAR_RANK`, `POMAR_SIZE` | this rank, and how many there are |
//! | `POMAR_TRANSPORT` | `auto` (when missing), `shm`, `tcp`, `rdma`, `ring` or `mpi` |
//! | `POMAR_SEGMENT_FD` | inherited descriptor of shared memory, for `shm` and `auto` |
//! | `POMAR_ADDRESSES` | JSON: for each rank the list of its "host:port", for `tcp`, `rdma` and `auto` |
//! | `POMAR_KEY` | 64 hexadecimal digits that only the ranks know, for the same |
//! | `POMAR_PLAIN_NETWORKS` | networks that are cables, such as "10.0.0.0/30,fe80::/10": connections there are not encrypted |
//! | `POMAR_RDMA_DEVICES` | path of a JSON matrix: row r, column p names rank r's devices towards rank p, as one name, a list, or null |
//! | `POMAR_RDMA_QUEUE_PAIRS` | `rc` or `uc`, to have other queue pairs than the driver's usual ones |
//! | `POMAR_RDMA_FRAME_BYTES` | largest RDMA message, a power of two from 4096 to 524288; the smaller wish of two ranks counts |
//! | `POMAR_RDMA_CHECKSUM` | `1` for a checksum in every RDMA frame, `0` for none |
//! | `MLX_RANK`, `MLX_HOSTFILE` | what MLX's launcher sets for its ring |
//!
//! Without any of them, a process that `mpirun` started joins the others over MPI, one that MLX's launcher started joins
//! the ring, and any other is a group of one.

use crate::{
    CommError, Group, GroupOptions, IpNetwork, MpiGroup, NetworkError, RingGroup, SoloGroup, auto,
    parse_address,
    rdma::{self, QpKind, RdmaDevices, RdmaOptions},
    shm::{ShmGroup, inherited_fd},
    tcp::{InstanceKey, TcpGroup, TcpListenerHandle},
};
use std::{net::SocketAddr, sync::Arc};

/// Joins the group that the environment describes.
///
/// # Errors
/// [`CommError::Setup`] for a variable that is missing or wrong, by name; else what joining that transport can meet.
pub fn from_env(options: GroupOptions) -> Result<Box<dyn Group>, CommError> {
    Environment { get: &|name| std::env::var(name).ok() }.join(options)
}

/// Where variables come from: the process's environment, or a test.
struct Environment<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

/// What `POMAR_TRANSPORT` can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Auto,
    Shm,
    Tcp,
    Rdma,
    Ring,
    Mpi,
}

impl Environment<'_> {
    fn join(&self, options: GroupOptions) -> Result<Box<dyn Group>, CommError> {
        let transport = self.transport()?;
        if (self.get)("POMAR_RANK").is_some() {
            return self.join_as_told(transport, options);
        }
        if transport == Transport::Mpi || MpiGroup::was_launched(self.get) {
            return Ok(Box::new(MpiGroup::join(options)?));
        }
        if (self.get)("MLX_RANK").is_some() && (self.get)("MLX_HOSTFILE").is_some() {
            return Ok(Box::new(RingGroup::from_env(options)?));
        }
        Ok(Box::new(SoloGroup::new()))
    }

    fn join_as_told(&self, transport: Transport, options: GroupOptions) -> Result<Box<dyn Group>, CommError> {
        let (rank, size) = (self.number("POMAR_RANK")?, self.number("POMAR_SIZE")?);
        match transport {
            _ if size == 1 => Ok(Box::new(SoloGroup::new())),
            Transport::Shm => self.join_shm(rank, size, options),
            Transport::Auto if (self.get)("POMAR_SEGMENT_FD").is_some() => self.join_shm(rank, size, options),
            Transport::Ring => Ok(Box::new(RingGroup::from_env(options)?)),
            // Which rank this is, MPI says.
            Transport::Mpi => Ok(Box::new(MpiGroup::join(options)?)),
            Transport::Tcp => Ok(Box::new(self.join_tcp(rank, size, options)?)),
            Transport::Rdma => {
                let ready =
                    RdmaDevices::load().and_then(|all| Ok((Arc::new(all), self.rdma_options(rank, size)?)));
                let group = self.join_tcp(rank, size, options)?;
                // The other ranks hear why this one can't, instead of waiting for it.
                let (devices, rdma) = ready.inspect_err(|error| group.abort(&error.to_string()))?;
                Ok(Box::new(rdma::connect(group, &devices, &rdma)?))
            }
            Transport::Auto => {
                let rdma = self.rdma_options(rank, size)?;
                let group = self.join_tcp(rank, size, options)?;
                Ok(Box::new(auto::choose(group, RdmaDevices::load().map(Arc::new), &rdma)?.0))
            }
        }
    }

    fn join_shm(&self, rank: usize, size: usize, options: GroupOptions) -> Result<Box<dyn Group>, CommError> {
        let number = self.number("POMAR_SEGMENT_FD")?;
        let fd =
            i32::try_from(number).map_err(|_| wrong("POMAR_SEGMENT_FD", "no descriptor has that number"))?;
        let fd = inherited_fd(fd).map_err(|error| wrong("POMAR_SEGMENT_FD", &error.to_string()))?;
        Ok(Box::new(ShmGroup::attach(fd, rank, size, options)?))
    }

    fn join_tcp(&self, rank: usize, size: usize, mut options: GroupOptions) -> Result<TcpGroup, CommError> {
        options.plain_networks.extend(self.plain_networks()?);
        let addresses = self.addresses(size)?;
        let key = self.key()?;
        let own =
            addresses.get(rank).ok_or_else(|| wrong("POMAR_RANK", "it must be less than POMAR_SIZE"))?;
        let listener = TcpListenerHandle::bind(own)?;
        TcpGroup::connect(listener, rank, &addresses, &key, options)
    }

    fn transport(&self) -> Result<Transport, CommError> {
        let name = (self.get)("POMAR_TRANSPORT").unwrap_or_default();
        match &name[..] {
            "" | "auto" => Ok(Transport::Auto),
            "shm" => Ok(Transport::Shm),
            "tcp" => Ok(Transport::Tcp),
            "rdma" => Ok(Transport::Rdma),
            "ring" => Ok(Transport::Ring),
            "mpi" => Ok(Transport::Mpi),
            other => Err(wrong(
                "POMAR_TRANSPORT",
                &format!("{other:?} is none of auto, shm, tcp, rdma, ring, mpi"),
            )),
        }
    }

    fn needed(&self, name: &str) -> Result<String, CommError> {
        (self.get)(name).ok_or_else(|| wrong(name, "it is not set; pomar launch sets it"))
    }

    fn number(&self, name: &str) -> Result<usize, CommError> {
        let text = self.needed(name)?;
        text.parse().map_err(|_| wrong(name, &format!("{text:?} is not a number")))
    }

    fn addresses(&self, size: usize) -> Result<Vec<Vec<SocketAddr>>, CommError> {
        const NAME: &str = "POMAR_ADDRESSES";
        let text = self.needed(NAME)?;
        let ranks: Vec<Vec<String>> =
            serde_json::from_str(&text).map_err(|error| wrong(NAME, &error.to_string()))?;
        if ranks.len() != size {
            return Err(wrong(NAME, &format!("addresses of {} ranks for a group of {size}", ranks.len())));
        }
        let parse = |text: &String| match parse_address(text, 0) {
            Ok(address) if address.port() == 0 => Err(wrong(NAME, &format!("{text:?} has no port"))),
            Ok(address) => Ok(address),
            Err(error) => Err(wrong(NAME, &error.to_string())),
        };
        ranks.iter().map(|rank| rank.iter().map(parse).collect()).collect()
    }

    fn plain_networks(&self) -> Result<Vec<IpNetwork>, CommError> {
        const NAME: &str = "POMAR_PLAIN_NETWORKS";
        let text = (self.get)(NAME).unwrap_or_default();
        let networks = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        networks
            .map(|text| text.parse().map_err(|error: NetworkError| wrong(NAME, &error.to_string())))
            .collect()
    }

    fn key(&self) -> Result<InstanceKey, CommError> {
        const NAME: &str = "POMAR_KEY";
        let text = self.needed(NAME)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() == 64 => {
                Ok(std::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1]))
            }
            // The key itself stays out of messages.
            _ => Err(wrong(NAME, "it must have 64 hexadecimal digits")),
        }
    }

    fn rdma_options(&self, rank: usize, size: usize) -> Result<RdmaOptions, CommError> {
        let devices = match (self.get)("POMAR_RDMA_DEVICES") {
            None => Vec::new(),
            Some(path) => rdma::read_device_matrix(path.as_ref(), rank, size)?,
        };
        let queue_pairs = match (self.get)("POMAR_RDMA_QUEUE_PAIRS").as_deref() {
            None => None,
            Some("rc") => Some(QpKind::Rc),
            Some("uc") => Some(QpKind::Uc),
            Some(other) => {
                return Err(wrong("POMAR_RDMA_QUEUE_PAIRS", &format!("{other:?} is neither rc nor uc")));
            }
        };
        let frame_bytes = match (self.get)("POMAR_RDMA_FRAME_BYTES") {
            None => RdmaOptions::default().frame_bytes,
            Some(_) => self.number("POMAR_RDMA_FRAME_BYTES")?,
        };
        let checksum = match (self.get)("POMAR_RDMA_CHECKSUM").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                return Err(wrong("POMAR_RDMA_CHECKSUM", &format!("{other:?} is neither 0 nor 1")));
            }
        };
        Ok(RdmaOptions { devices, queue_pairs, frame_bytes, checksum })
    }
}

fn wrong(name: &str, why: &str) -> CommError {
    CommError::Setup { what: format!("{name}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(variables: &[(&str, &str)]) -> String {
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        match (Environment { get: &get }).join(GroupOptions::default()) {
            Ok(group) => format!("a group of {}", group.size()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn without_a_launcher_a_process_is_alone() {
        assert_eq!(refusal(&[]), "a group of 1");
        assert_eq!(refusal(&[("POMAR_RANK", "0"), ("POMAR_SIZE", "1")]), "a group of 1");
    }

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn each_wrong_variable_is_named() {
        let base = [("POMAR_RANK", "0"), ("POMAR_SIZE", "2")];
        let with = |more: &[(&'static str, &'static str)]| {
            let mut all = more.to_vec();
            all.extend(base);
            refusal(&all)
        };
        for (variables, words) in [
            (&[("POMAR_RANK", "one")][..], "POMAR_RANK: \"one\" is not a number"),
            (&[("POMAR_TRANSPORT", "pigeon")], "POMAR_TRANSPORT: \"pigeon\" is none of"),
            (&[("POMAR_TRANSPORT", "shm")], "POMAR_SEGMENT_FD: it is not set"),
            (&[("POMAR_TRANSPORT", "tcp")], "POMAR_ADDRESSES: it is not set"),
            (&[("POMAR_RDMA_CHECKSUM", "yes")], "POMAR_RDMA_CHECKSUM: \"yes\" is neither"),
            (&[("POMAR_RDMA_FRAME_BYTES", "big")], "POMAR_RDMA_FRAME_BYTES: \"big\" is not a number"),
            (&[("POMAR_ADDRESSES", "[[\"127.0.0.1:1\"]]")], "POMAR_ADDRESSES: addresses of 1 ranks"),
            (&[("POMAR_ADDRESSES", "[[\"nowhere\"],[]]")], "POMAR_ADDRESSES: \"nowhere\""),
            (
                &[("POMAR_ADDRESSES", "[[\"127.0.0.1:1\"],[\"127.0.0.1:2\"]]"), ("POMAR_KEY", "12")],
                "POMAR_KEY: it must have 64",
            ),
            (&[("POMAR_ADDRESSES", "[[\"fe80::1\"],[]]")], "say which interface of this machine leads to it"),
            (
                &[
                    ("POMAR_ADDRESSES", "[[],[]]"),
                    ("POMAR_KEY", KEY),
                    ("POMAR_PLAIN_NETWORKS", "10.7.0.0/24, 10"),
                ],
                "POMAR_PLAIN_NETWORKS: \"10\" is not a range",
            ),
            (&[("POMAR_ADDRESSES", "[[],[]]"), ("POMAR_KEY", KEY)], "there is no address to listen at"),
        ] {
            let error = with(variables);
            assert!(error.contains(words), "{variables:?}: {error}");
        }
    }
}
