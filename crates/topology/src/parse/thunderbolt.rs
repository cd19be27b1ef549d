//! `system_profiler SPThunderboltDataType -json`: Thunderbolt buses and what is plugged into them.
//!
//! ```json
//! {"SPThunderboltDataType": [{
//!     "_name": "thunderboltusb4_bus_1",
//!     "device_name_key": "Mac mini",
//!     "domain_uuid_key": "7F158861-...",
//!     "switch_uid_key": "0x05AC...",
//!     "receptacle_1_tag": {
//!         "receptacle_id_key": "2",
//!         "receptacle_status_key": "receptacle_connected",
//!         "current_speed_key": "80 Gb/s"
//!     },
//!     "_items": [{"_name": "Mac Studio", "device_name_key": "Mac16,9", "domain_uuid_key": "88F10ACA-..."}]
//! }]}
//! ```
//!
//! - A bus is one port of the machine: `receptacle_id_key` 2 is the network port `Thunderbolt 2`. (Intel Macs
//!   have two receptacles on a bus; the one that is connected is meant.)
//! - `domain_uuid_key` of the bus names this end of a cable, and stays the same over restarts; that of an
//!   entry in `_items` names the other end. A Mac behind a dock is in the dock's `_items`.
//! - `current_speed_key` is `80 Gb/s` for a link, and `Up to 120 Gb/s` for what an empty port could do.
//! - Docks and disks have `receptacle_upstream_ambiguous_tag` and no domain.

use super::{MAX_ITEMS, ParseError, clean};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

const ROOT: &str = "SPThunderboltDataType";
/// The longest domain that is kept; a UUID has 36 characters.
const MAX_DOMAIN: usize = 64;

/// What the machine calls itself, and its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thunderbolt {
    /// The machine's kind, such as `Mac Studio`.
    pub model: Option<String>,
    /// Its ports by receptacle.
    pub buses: Vec<Bus>,
}

/// One Thunderbolt port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bus {
    /// The number of the port, as in `Thunderbolt 2`; not known when a bus has several and none is connected.
    pub receptacle: Option<String>,
    /// This end's domain.
    pub domain: Option<String>,
    /// True when something is plugged in and powered.
    pub connected: bool,
    /// The speed of the link, or what the empty port could do.
    pub speed: Option<Speed>,
    /// The machines at the other end; more than one when a dock has several.
    pub peers: Vec<Peer>,
    /// The first device at the other end that is no machine, such as a disk.
    pub device: Option<String>,
}

/// A machine that is seen through a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// The domain of its end.
    pub domain: String,
    /// What it calls itself.
    pub name: String,
    /// The dock or disk that it is plugged into, when the cable is not direct.
    pub through: Option<String>,
}

/// Gigabits a second, of a link or at most of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Gb/s.
    pub gbps: u32,
    /// True for what an empty port could do.
    pub up_to: bool,
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} Gb/s", if self.up_to { "up to " } else { "" }, self.gbps)
    }
}

/// Reads the buses, ordered by receptacle.
///
/// # Errors
///
/// The text is no JSON, or a field that says who is connected to whom has the wrong type. Fields that nobody
/// knows, and known ones that are not there, are no errors.
pub fn parse(text: &str) -> Result<Thunderbolt, ParseError> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| ParseError::new("JSON", error.to_string()))?;
    let entries = document.get(ROOT).and_then(Value::as_array);
    let entries = entries.ok_or_else(|| ParseError::new(ROOT, "is not there, or no list"))?;
    if entries.len() > MAX_ITEMS {
        return Err(ParseError::new(ROOT, format!("has {} buses", entries.len())));
    }
    let mut found = Thunderbolt::default();
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("{ROOT}[{index}]");
        found.model = found.model.or(text_of(entry, &at, "device_name_key")?.map(|name| clean(&name)));
        found.buses.push(bus(entry, &at)?);
    }
    found.buses.sort_by_key(|bus| {
        let number = bus.receptacle.as_ref().and_then(|id| id.parse::<u32>().ok());
        (number.unwrap_or(u32::MAX), bus.receptacle.clone())
    });
    Ok(found)
}

fn bus(entry: &Value, at: &str) -> Result<Bus, ParseError> {
    let receptacle = receptacle(entry, at)?;
    let mut bus = Bus {
        receptacle: receptacle.id,
        domain: domain(entry, at)?,
        connected: receptacle.connected,
        speed: receptacle.speed,
        peers: Vec::new(),
        device: None,
    };
    collect(entry, at, None, &mut bus)?;
    Ok(bus)
}

/// Takes the machines from `_items`, and those behind docks. JSON of more than 128 levels was refused before.
fn collect(entry: &Value, at: &str, through: Option<&str>, bus: &mut Bus) -> Result<(), ParseError> {
    let Some(items) = entry.get("_items") else { return Ok(()) };
    let items = items.as_array().ok_or_else(|| ParseError::new(format!("{at}._items"), "is no list"))?;
    for (index, item) in items.iter().enumerate() {
        let at = format!("{at}._items[{index}]");
        let name = text_of(item, &at, "_name")?.map_or_else(|| "a device".into(), |name| clean(&name));
        match domain(item, &at)? {
            Some(domain) if bus.peers.len() < MAX_ITEMS => {
                bus.peers.push(Peer { domain, name, through: through.map(str::to_owned) });
            }
            Some(_) => return Err(ParseError::new(at, format!("is one of more than {MAX_ITEMS} machines"))),
            None => {
                collect(item, &at, Some(&name), bus)?;
                bus.device.get_or_insert(name);
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Receptacle {
    id: Option<String>,
    connected: bool,
    speed: Option<Speed>,
}

/// The only receptacle of a bus, or the only one that is connected.
fn receptacle(entry: &Value, at: &str) -> Result<Receptacle, ParseError> {
    let fields = entry.as_object().ok_or_else(|| ParseError::new(at, "is no object"))?;
    let mut all = Vec::new();
    for (key, tag) in fields.iter().filter(|(key, _)| is_receptacle(key)) {
        let at = format!("{at}.{key}");
        all.push(Receptacle {
            id: text_of(tag, &at, "receptacle_id_key")?.map(|id| clean(&id)),
            connected: text_of(tag, &at, "receptacle_status_key")?.as_deref() == Some("receptacle_connected"),
            speed: text_of(tag, &at, "current_speed_key")?.as_deref().and_then(speed),
        });
    }
    if all.len() > 1 && all.iter().filter(|receptacle| receptacle.connected).count() == 1 {
        all.retain(|receptacle| receptacle.connected);
    }
    let sole = if all.len() == 1 { all.pop() } else { None };
    Ok(sole.unwrap_or_default())
}

/// `receptacle_1_tag`, and not `receptacle_upstream_ambiguous_tag`.
fn is_receptacle(key: &str) -> bool {
    let number = key.strip_prefix("receptacle_").and_then(|rest| rest.strip_suffix("_tag"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The UUID as others write it too: in capitals.
fn domain(entry: &Value, at: &str) -> Result<Option<String>, ParseError> {
    let Some(domain) = text_of(entry, at, "domain_uuid_key")? else { return Ok(None) };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if domain.is_empty() || domain.len() > MAX_DOMAIN || !domain.chars().all(fits) {
        return Err(ParseError::new(
            format!("{at}.domain_uuid_key"),
            format!("'{}' is no UUID", clean(&domain)),
        ));
    }
    Ok(Some(domain.to_ascii_uppercase()))
}

/// `80 Gb/s`, `Up to 120 Gb/s`, `Up to 40 Gb/s x1`.
fn speed(text: &str) -> Option<Speed> {
    let lower = text.trim().to_ascii_lowercase();
    let (up_to, rest) = lower.strip_prefix("up to ").map_or((false, lower.as_str()), |rest| (true, rest));
    let (number, unit) = rest.split_once(' ')?;
    (unit.starts_with("gb/s")).then_some(Speed { gbps: number.parse().ok()?, up_to })
}

/// A text, or a number as text; other types are an error, since the profiler never writes them here.
fn text_of(entry: &Value, at: &str, key: &str) -> Result<Option<String>, ParseError> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(ParseError::new(format!("{at}.{key}"), "is no text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(buses: Value) -> Result<Thunderbolt, ParseError> {
        parse(&json!({ ROOT: buses }).to_string())
    }

    #[test]
    fn a_mac_behind_a_dock_is_seen_through_it() {
        let found = read(json!([{
            "domain_uuid_key": "aa-01",
            "receptacle_1_tag": {
                "receptacle_id_key": "3",
                "receptacle_status_key": "receptacle_connected",
                "current_speed_key": "40 Gb/s"
            },
            "_items": [{
                "_name": "Dock", "receptacle_upstream_ambiguous_tag": {"current_speed_key": "40 Gb/s"},
                "_items": [{"_name": "MacBook Pro", "domain_uuid_key": "bb-02"}]
            }]
        }]));
        let bus = &found.unwrap().buses[0];
        let through = Some("Dock".to_owned());
        assert_eq!(bus.peers, [Peer { domain: "BB-02".into(), name: "MacBook Pro".into(), through }]);
        assert_eq!((bus.domain.as_deref(), bus.device.as_deref()), (Some("AA-01"), Some("Dock")));
        assert_eq!(bus.speed, Some(Speed { gbps: 40, up_to: false }));
    }

    #[test]
    fn of_two_receptacles_the_connected_one_is_meant() {
        let tag = |id: u32, status: &str| json!({"receptacle_id_key": id, "receptacle_status_key": status});
        let (full, empty) = ("receptacle_connected", "receptacle_no_devices_connected");
        let found = read(json!([
            {"receptacle_1_tag": tag(1, empty), "receptacle_2_tag": tag(2, full)},
            {"receptacle_1_tag": tag(3, empty), "receptacle_2_tag": tag(4, empty)}
        ]));
        let ids: Vec<_> = found.unwrap().buses.into_iter().map(|bus| bus.receptacle).collect();
        assert_eq!(ids, [Some("2".into()), None]);
    }

    #[test]
    fn speeds_are_of_links_or_of_ports() {
        assert_eq!(speed("80 Gb/s"), Some(Speed { gbps: 80, up_to: false }));
        assert_eq!(speed("Up to 40 Gb/s x1").unwrap().to_string(), "up to 40 Gb/s");
        assert_eq!((speed("fast"), speed("80 Mb/s"), speed("9999999999 Gb/s")), (None, None, None));
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let cases = [
            (json!([{}, {"domain_uuid_key": ["x"]}]), "SPThunderboltDataType[1].domain_uuid_key: is no text"),
            (
                json!([{"_items": [{"domain_uuid_key": "$(x)"}]}]),
                "SPThunderboltDataType[0]._items[0].domain_uuid_key: '$(x)' is no UUID",
            ),
            (json!([{"_items": 3}]), "SPThunderboltDataType[0]._items: is no list"),
            (json!([7]), "SPThunderboltDataType[0]: is no object"),
            (json!({}), "SPThunderboltDataType: is not there, or no list"),
        ];
        for (buses, message) in cases {
            assert_eq!(read(buses).unwrap_err().to_string(), message);
        }
        assert_eq!(parse("{\"SPThunder").unwrap_err().field, "JSON");
        assert_eq!(parse(&"[".repeat(100_000)).unwrap_err().field, "JSON");
    }
}
