//! Which row of a device's GID table a queue pair uses.

use crate::CommError;
use pomar_verbs::Gid;

/// The first IPv4-mapped row: the one whose address both ends of a Thunderbolt cable or RoCE link agree on. Fixed row
/// numbers are wrong as soon as an interface has an IPv6 address more or less.
///
/// # Errors
/// [`CommError::Setup`] that says which interface needs an address.
pub(super) fn choose(device: &str, rows: &[(u8, Gid)]) -> Result<(u8, Gid), CommError> {
    let mapped = rows.iter().find(|(_, gid)| gid.ipv4().is_some());
    mapped.copied().ok_or_else(|| {
        let have = match rows {
            [] => "its GID table is empty".to_owned(),
            rows => {
                let rows: Vec<String> = rows.iter().map(|(row, gid)| format!("{row}: {gid}")).collect();
                format!("its GID table has only {}", rows.join(", "))
            }
        };
        let interface =
            interface(device).map_or_else(|| "its interface".into(), |name| format!("interface {name}"));
        let what = format!(
            "RDMA device {device} has no IPv4-mapped GID ({have}): give {interface} an IPv4 address, and no \
             other interface the same one"
        );
        CommError::Setup { what }
    })
}

/// The network interface behind a device: macOS names devices after it, Linux tells it in sysfs.
fn interface(device: &str) -> Option<String> {
    if let Some(name) = device.strip_prefix("rdma_") {
        return Some(name.to_owned());
    }
    // A device's name comes from the system or from the user; no path must be made of anything else.
    if !device.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return None;
    }
    let name = std::fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0"));
    name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(last: u8) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last])
    }

    fn link_local() -> Gid {
        Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    }

    #[test]
    fn the_first_mapped_row_wins_wherever_it_is() {
        let rows = [(0, link_local()), (3, mapped(7)), (5, mapped(8))];
        assert_eq!(choose("rdma_en5", &rows).unwrap(), (3, mapped(7)));
    }

    #[test]
    fn without_one_the_error_names_the_interface_and_what_there_is() {
        let error = choose("rdma_en5", &[(0, link_local())]).unwrap_err().to_string();
        assert!(
            error.contains("give interface en5 an IPv4 address") && error.contains("0: fe80::1"),
            "{error}"
        );
        let error = choose("odd/../name", &[]).unwrap_err().to_string();
        assert!(error.contains("give its interface an") && error.contains("table is empty"), "{error}");
    }
}
