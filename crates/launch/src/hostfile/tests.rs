//! Both forms, and every way for a field to be wrong.

use super::{Devices, Hostfile};
use crate::Backend;
use serde_json::{Value, json};

fn read(value: &Value) -> Result<Hostfile, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), value.to_string()).unwrap();
    Hostfile::read(file.path()).map_err(|error| error.to_string())
}

#[test]
fn the_list_form() {
    let hostfile = read(&json!([
        {"ssh": "a", "ips": ["10.0.0.1", "fe80::1%en5"], "rdma": [null, "rdma_en5"]},
        {"ssh": "me@10.0.0.2", "rdma": [["rdma_en2", "rdma_en3"], null]},
        {"ssh": "10.0.0.3"},
    ]))
    .unwrap();
    assert_eq!((hostfile.backend, hostfile.envs.len()), (None, 0));
    let [a, b, c] = hostfile.hosts.as_slice() else { panic!("{hostfile:?}") };
    assert_eq!((a.ssh.as_str(), a.ips[1].as_str()), ("a", "fe80::1%en5"));
    assert_eq!(a.rdma, [Devices::None, Devices::One("rdma_en5".into())]);
    assert_eq!((b.ips.len(), b.rdma[0].wires()), (0, 2));
    // A name that is an address needs no other.
    assert_eq!(c.ips[0].as_str(), "10.0.0.3");
}

#[test]
fn the_object_form() {
    let hostfile = read(&json!({
        "backend": "jaccl-ring",
        "envs": ["MLX_METAL_FAST_SYNCH=1", "EMPTY="],
        "hosts": [{"ssh": "a"}],
    }))
    .unwrap();
    assert_eq!(hostfile.backend, Some(Backend::JacclRing));
    assert_eq!(hostfile.envs[0].name(), "MLX_METAL_FAST_SYNCH");
    assert_eq!(hostfile.envs[1].value(), "");
    // MLX writes "" when no backend was chosen.
    assert_eq!(read(&json!({"backend": "", "envs": [], "hosts": [{"ssh": "a"}]})).unwrap().backend, None);
}

#[test]
fn every_wrong_field_is_named() {
    let host = |field: &str, value: Value| json!([{"ssh": "a"}, {"ssh": "b", field: value}]);
    let cases = [
        (json!("a"), "the whole must be a list of hosts or an object"),
        (json!([]), "hosts must have 1 to 256 entries, one per rank, not 0"),
        (json!(vec![json!({"ssh": "a"}); 257]), "hosts must have 1 to 256 entries, one per rank, not 257"),
        (json!({"backend": "ring"}), "hosts is missing"),
        (json!({"hosts": {}}), "hosts must be a list of hosts"),
        (json!({"host": []}), "the object has a field \"host\" that is not known"),
        (json!({"backend": 1, "hosts": []}), "backend must be a string, not 1"),
        (
            json!({"backend": "tcp", "hosts": []}),
            "backend is wrong: 'tcp' is no backend; there are ring, jaccl",
        ),
        (json!({"envs": "A=1", "hosts": []}), "envs must be a list of \"NAME=VALUE\""),
        (json!({"envs": ["A=1", "B"], "hosts": []}), "envs[1] 'B' is not of the form NAME=VALUE"),
        (json!({"envs": ["1A=1"], "hosts": []}), "envs[0] '1A' is no name for an environment variable"),
        (json!({"envs": [1], "hosts": []}), "envs[0] must be a string, not 1"),
        (json!(["a"]), "hosts[0] must be an object like"),
        (json!([{"ips": []}]), "hosts[0].ssh is missing"),
        (json!([{"ssh": 5}]), "hosts[0].ssh must be a string, not 5"),
        (json!([{"ssh": ""}]), "hosts[0].ssh is empty"),
        (json!([{"ssh": "-oProxyCommand=id"}]), "hosts[0].ssh is '-oProxyCommand=id', which is no name"),
        (json!([{"ssh": "a\nb"}]), "hosts[0].ssh is 'a\\nb', which is no name"),
        (json!([{"ssh": "a$(id)"}]), "hosts[0].ssh is 'a$(id)', which is no name"),
        (
            host("ip", json!("10.0.0.1")),
            "hosts[1] has a field \"ip\" that is not known; the fields are ssh, ips, rdma",
        ),
        (host("ips", json!("10.0.0.1")), "hosts[1].ips must be a list of addresses"),
        (host("ips", json!([1])), "hosts[1].ips[0] must be a string, not 1"),
        (host("ips", json!(["10.0.0.1", "10.0.0.256"])), "hosts[1].ips[1] is '10.0.0.256', which is neither"),
        (
            host("ips", json!(["10.0.0.1:80"])),
            "hosts[1].ips[0] is '10.0.0.1:80', which is no address (give it without",
        ),
        (host("rdma", json!("rdma_en5")), "hosts[1].rdma must be a list of RDMA device names"),
        (host("rdma", json!(["rdma en5", null])), "hosts[1].rdma[0] is 'rdma en5', which is no device name"),
        (
            host("rdma", json!([[], null])),
            "hosts[1].rdma[0] must be null, a device name or a list of names, not []",
        ),
        (host("rdma", json!([[1], null])), "hosts[1].rdma[0] must be a string, not 1"),
        (
            host("rdma", json!([true])),
            "hosts[1].rdma[0] must be null, a device name or a list of names, not true",
        ),
    ];
    for (value, part) in cases {
        let error = read(&value).unwrap_err();
        assert!(error.starts_with("hostfile /") && error.contains(part), "{value}\n{error}\n{part}");
    }
}

#[test]
fn what_is_no_json_is_placed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[{\"ssh\": \"a\"},\n]").unwrap();
    let error = Hostfile::read(file.path()).unwrap_err().to_string();
    assert!(error.contains("not JSON") && error.contains("line 2 column 1"), "{error}");
    let error = Hostfile::read("/no/such/file".as_ref()).unwrap_err().to_string();
    assert!(error.contains("/no/such/file") && error.contains("No such file"), "{error}");
    std::fs::write(file.path(), vec![b' '; (4 << 20) + 1]).unwrap();
    assert!(Hostfile::read(file.path()).unwrap_err().to_string().contains("longer than 4194304 bytes"));
}

#[test]
fn names_are_repeated_in_place() {
    let hostfile = Hostfile::from_names("a,10.0.0.2", 2).unwrap();
    let names: Vec<&str> = hostfile.hosts.iter().map(|host| host.ssh.as_str()).collect();
    assert_eq!(names, ["a", "a", "10.0.0.2", "10.0.0.2"]);
    assert!(Hostfile::from_names("a,,b", 1).unwrap_err().contains("host 2 of --hosts is empty"));
    assert!(Hostfile::from_names("a,b", 200).unwrap_err().contains("more than 256 ranks"));
}
