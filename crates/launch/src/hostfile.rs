//! MLX's hostfile: which machines, how to log in to them, and where their ranks listen.
//!
//! The list form is one entry per rank, `[{"ssh": "a", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en5"]}, ...]`;
//! the object form adds to it: `{"backend": "ring", "envs": ["NAME=VALUE"], "hosts": [...]}`. `ips` and `rdma` may be
//! missing. A field that is not known is refused, since a misspelt one would change what is started.

use crate::{Address, Backend, env::Variable};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Most ranks that one launch starts.
pub const MAX_RANKS: usize = 256;
/// Largest hostfile that is read, in bytes: 256 entries of 256 RDMA devices fit easily.
const MAX_BYTES: u64 = 4 << 20;

/// The machines of a launch, one entry per rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hostfile {
    /// The backend it asks for.
    pub backend: Option<Backend>,
    /// Environment for every rank.
    pub envs: Vec<Variable>,
    /// One entry per rank, in rank order.
    pub hosts: Vec<Host>,
}

/// Where one rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name given to ssh; `127.0.0.1`, `::1` and `localhost` are this machine.
    pub ssh: String,
    /// Addresses where its rank listens.
    pub ips: Vec<Address>,
    /// For each rank, the RDMA devices that lead there.
    pub rdma: Vec<Devices>,
}

impl Host {
    /// A host of which only the name is known; a name that is an address is also where its rank listens.
    ///
    /// # Errors
    /// What is wrong with the name, as the end of a sentence.
    pub fn named(ssh: &str) -> Result<Self, String> {
        check_ssh(ssh)?;
        let ips = ssh.parse::<Address>().ok().filter(Address::is_plain_ip);
        Ok(Self { ssh: ssh.into(), ips: ips.into_iter().collect(), rdma: Vec::new() })
    }

    /// True when its rank is a child of the launcher, without ssh.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        matches!(self.ssh.as_str(), "localhost" | "127.0.0.1" | "::1")
    }
}

/// The RDMA devices from one rank to another, as JACCL writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Devices {
    /// No cable, or the rank itself.
    None,
    /// One cable.
    One(String),
    /// Several cables.
    Many(Vec<String>),
}

impl Devices {
    /// Number of cables.
    #[must_use]
    pub fn wires(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(names) => names.len(),
        }
    }
}

/// Why a hostfile was not understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostfileError {
    /// The file cannot be read.
    #[error("hostfile {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// It is too long to be one.
    #[error("hostfile {}: longer than {MAX_BYTES} bytes; is it a hostfile?", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is no JSON.
    #[error("hostfile {}: not JSON: {error}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why, with line and column.
        error: serde_json::Error,
    },
    /// One field is not what it must be.
    #[error("hostfile {}: {field} {why}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The entry and field, as `hosts[1].ips[0]`.
        field: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// A field that is wrong: which, and the rest of the sentence.
type Wrong = (String, String);

impl Hostfile {
    /// Reads a hostfile of either form.
    ///
    /// # Errors
    /// [`HostfileError`], naming the entry and the field.
    pub fn read(path: &Path) -> Result<Self, HostfileError> {
        let mut text = String::new();
        let file = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        file.map_err(|error| HostfileError::Read { path: path.into(), error })?;
        if text.len() as u64 > MAX_BYTES {
            return Err(HostfileError::TooLong { path: path.into() });
        }
        Self::parse(&text, path)
    }

    /// Reads the text of a hostfile; `path` is for messages.
    ///
    /// # Errors
    /// As [`Hostfile::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, HostfileError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| HostfileError::Json { path: path.into(), error })?;
        Self::from_json(&value).map_err(|(field, why)| HostfileError::Field { path: path.into(), field, why })
    }

    /// Each of the comma-separated names, `repeat` times.
    ///
    /// # Errors
    /// A sentence that names the host.
    pub fn from_names(names: &str, repeat: usize) -> Result<Self, String> {
        let mut hosts = Vec::new();
        for (index, name) in names.split(',').enumerate() {
            let host = Host::named(name).map_err(|why| format!("host {} of --hosts {why}", index + 1))?;
            if repeat > MAX_RANKS - hosts.len() {
                return Err(format!("these hosts, {repeat} times each, are more than {MAX_RANKS} ranks"));
            }
            hosts.extend(std::iter::repeat_n(host, repeat));
        }
        Ok(Self { hosts, ..Self::default() })
    }

    fn from_json(value: &Value) -> Result<Self, Wrong> {
        let object = match value {
            Value::Array(hosts) => return Ok(Self { hosts: read_hosts(hosts)?, ..Self::default() }),
            Value::Object(object) => object,
            _ => return Err(wrong("the whole", "must be a list of hosts or an object with \"hosts\"")),
        };
        only_known(object, "the object", &["backend", "envs", "hosts"])?;
        let hosts = object.get("hosts").ok_or_else(|| wrong("hosts", "is missing: the list of hosts"))?;
        Ok(Self {
            backend: object.get("backend").map(read_backend).transpose()?.flatten(),
            envs: object.get("envs").map(read_envs).transpose()?.unwrap_or_default(),
            hosts: read_hosts(list(hosts, "hosts", "hosts")?)?,
        })
    }
}

fn wrong(field: impl Into<String>, why: impl Into<String>) -> Wrong {
    (field.into(), why.into())
}

/// The value as a list, or the complaint that it must be a list of `what`.
fn list<'a>(value: &'a Value, field: &str, what: &str) -> Result<&'a [Value], Wrong> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(field, format!("must be a list of {what}")))
}

fn string<'a>(value: &'a Value, field: &str) -> Result<&'a str, Wrong> {
    value.as_str().ok_or_else(|| wrong(field, format!("must be a string, not {value}")))
}

fn only_known(object: &Map<String, Value>, of: &str, known: &[&str]) -> Result<(), Wrong> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let known = known.join(", ");
            Err(wrong(of, format!("has a field \"{key}\" that is not known; the fields are {known}")))
        }
    }
}

/// MLX writes an empty string for "none".
fn read_backend(value: &Value) -> Result<Option<Backend>, Wrong> {
    match string(value, "backend")? {
        "" => Ok(None),
        name => name.parse().map(Some).map_err(|why| wrong("backend", format!("is wrong: {why}"))),
    }
}

fn read_envs(value: &Value) -> Result<Vec<Variable>, Wrong> {
    let entries = list(value, "envs", "\"NAME=VALUE\"")?.iter().enumerate();
    let read = |(index, value): (usize, &Value)| {
        let field = format!("envs[{index}]");
        string(value, &field)?.parse::<Variable>().map_err(|why| wrong(field, why))
    };
    entries.map(read).collect()
}

fn read_hosts(values: &[Value]) -> Result<Vec<Host>, Wrong> {
    if values.is_empty() || values.len() > MAX_RANKS {
        let count = values.len();
        return Err(wrong("hosts", format!("must have 1 to {MAX_RANKS} entries, one per rank, not {count}")));
    }
    values.iter().enumerate().map(|(index, value)| read_host(&format!("hosts[{index}]"), value)).collect()
}

fn read_host(entry: &str, value: &Value) -> Result<Host, Wrong> {
    let object = value.as_object().ok_or_else(|| {
        wrong(
            entry,
            format!("must be an object like {{\"ssh\": \"host1\", \"ips\": [\"10.0.0.1\"]}}, not {value}"),
        )
    })?;
    only_known(object, entry, &["ssh", "ips", "rdma"])?;
    let field = format!("{entry}.ssh");
    let ssh = object.get("ssh").ok_or_else(|| wrong(&field, "is missing: the name to give to ssh"))?;
    let mut host = Host::named(string(ssh, &field)?).map_err(|why| wrong(&field, why))?;
    if let Some(ips) = object.get("ips").filter(|ips| !ips.as_array().is_some_and(Vec::is_empty)) {
        host.ips = read_ips(&format!("{entry}.ips"), ips)?;
    }
    if let Some(rdma) = object.get("rdma") {
        host.rdma = read_rdma(&format!("{entry}.rdma"), rdma)?;
    }
    Ok(host)
}

/// Refuses what ssh would take for an option, or what no host is called.
fn check_ssh(name: &str) -> Result<(), String> {
    let good = |c: char| !c.is_whitespace() && !c.is_control() && !"'\"\\`$;&|<>(){}*?!#".contains(c);
    if name.is_empty() {
        Err("is empty; it must be a name to give to ssh".into())
    } else if name.starts_with('-') || name.len() > 255 || !name.chars().all(good) {
        Err(format!("is '{}', which is no name to give to ssh", name.escape_debug()))
    } else {
        Ok(())
    }
}

fn read_ips(field: &str, value: &Value) -> Result<Vec<Address>, Wrong> {
    let entries = list(value, field, "addresses")?.iter().enumerate();
    let read = |(index, value): (usize, &Value)| {
        let field = format!("{field}[{index}]");
        let text = string(value, &field)?;
        text.parse::<Address>().map_err(|why| wrong(field, format!("is '{text}', which {why}")))
    };
    entries.map(read).collect()
}

fn read_rdma(field: &str, value: &Value) -> Result<Vec<Devices>, Wrong> {
    let entries = list(value, field, "RDMA device names, one per rank, null for itself")?.iter().enumerate();
    let read = |(index, value): (usize, &Value)| {
        let field = format!("{field}[{index}]");
        match value {
            Value::Null => Ok(Devices::None),
            Value::String(name) => device(&field, name).map(Devices::One),
            Value::Array(names) if !names.is_empty() => {
                let named = names.iter().map(|name| device(&field, string(name, &field)?));
                named.collect::<Result<_, _>>().map(Devices::Many)
            }
            other => {
                Err(wrong(field, format!("must be null, a device name or a list of names, not {other}")))
            }
        }
    };
    entries.map(read).collect()
}

fn device(field: &str, name: &str) -> Result<String, Wrong> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(good) {
        Ok(name.into())
    } else {
        Err(wrong(field, format!("is '{}', which is no device name like rdma_en5", name.escape_debug())))
    }
}

#[cfg(test)]
mod tests;
