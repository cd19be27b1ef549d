//! What devices and ports say about themselves.

use crate::common::{alone, first_device_with, library, this_program};
use pomar_fake_verbs::{PortState, SCRIPT_VARIABLE, Script, library_path};
use pomar_verbs::{Library, LinkLayer, PathMtu, VerbsError};

#[test]
fn the_default_machine_has_two_good_devices() {
    alone(&Script::default(), || {
        let library = library();
        assert_eq!(library.device_names().unwrap(), ["fake0", "fake1"]);
        assert!(!library.is_apple());
        let device = library.open_device("fake1").unwrap();
        assert_eq!(device.name(), "fake1");
        let port = device.port().unwrap();
        assert!(port.active);
        assert_eq!(
            (port.state, port.path_mtu, port.link_layer),
            ("active", PathMtu::M1024, LinkLayer::Ethernet)
        );
        let gids: Vec<_> = device.gids().unwrap().iter().map(|(row, gid)| format!("{row} {gid}")).collect();
        assert_eq!(gids, ["0 fe80::2", "1 ::ffff:10.99.0.2"]);
    });
}

#[test]
fn no_device_at_all() {
    alone(&Script { devices: Vec::new() }, || {
        assert!(library().device_names().unwrap().is_empty());
        let error = library().open_device("fake0").expect_err("none");
        assert!(error.to_string().contains("this machine has no RDMA device at all"), "{error}");
    });
}

#[test]
fn a_wrong_name_lists_the_right_ones() {
    alone(&Script::default(), || {
        let error = library().open_device("fake7").expect_err("no such device");
        assert!(matches!(&error, VerbsError::NoSuchDevice { exist, .. } if exist.len() == 2));
        assert_eq!(error.to_string(), "no RDMA device is named \"fake7\"; there are: fake0, fake1");
    });
}

#[test]
fn odd_gid_tables() {
    let tables: [(&[&str], &[u8], Option<u8>); 4] = [
        (&[], &[], None),
        (&["::", "::"], &[], None),
        (&["fe80::1"], &[0], None),
        (&["fe80::1", "::", "::", "::ffff:10.99.0.1", "::"], &[0, 3], Some(3)),
    ];
    // One device each.
    let mut script = Script { devices: Vec::new() };
    for (index, (table, ..)) in tables.iter().enumerate() {
        let mut device = Script::one_device(&format!("fake{index}")).devices.remove(0);
        device.gids = table.iter().map(|gid| gid.parse().unwrap()).collect();
        script.devices.push(device);
    }
    alone(&script, || {
        for (index, (table, rows, mapped)) in tables.iter().enumerate() {
            let device = library().open_device(&format!("fake{index}")).unwrap();
            let gids = device.gids().unwrap();
            assert_eq!(device.port().unwrap().gid_rows as usize, table.len());
            assert_eq!(gids.iter().map(|(row, _)| *row).collect::<Vec<_>>(), *rows);
            let found = gids.iter().find(|(_, gid)| gid.ipv4().is_some());
            assert_eq!(found.map(|(row, _)| *row), *mapped);
        }
    });
}

#[test]
fn a_port_that_is_down_says_why() {
    alone(&first_device_with(|device| device.port = PortState::Down), || {
        let port = library().open_device("fake0").unwrap().port().unwrap();
        assert!(!port.active);
        assert_eq!(port.state, "down: no cable, or the other end is off");
    });
}

#[test]
fn a_full_size_table_is_read_to_its_end() {
    alone(&first_device_with(|device| device.gids = vec!["::ffff:10.0.0.1".parse().unwrap(); 300]), || {
        let device = library().open_device("fake0").unwrap();
        assert_eq!(device.gids().unwrap().len(), 256, "a queue pair's index has 8 bits");
    });
}

#[test]
fn a_wrong_script_says_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = this_program(&Script::default(), folder.path());
    command.env(SCRIPT_VARIABLE, r#"{"devices": [{"gids": ["10.0.0.1"]}]}"#);
    let output =
        command.args(["--exact", "devices::with_any_script", "--nocapture"]).output().expect("this program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("pomar-fake-verbs: POMAR_FAKE_VERBS: "), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("ibv_get_device_list failed"), "{output:?}");
}

/// For the test above; else nothing to see.
#[test]
fn with_any_script() {
    match library().device_names() {
        Ok(names) => println!("{names:?}"),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn apple_s_library_is_known_by_its_name() {
    alone(&Script::default(), || {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("librdma.dylib");
        std::os::unix::fs::symlink(library_path().unwrap(), &link).expect("a link");
        let library = Library::open(&link).unwrap();
        assert!(library.is_apple());
        assert_eq!(library.file(), link);
        assert_eq!(library.device_names().unwrap().len(), 2);
    });
}
