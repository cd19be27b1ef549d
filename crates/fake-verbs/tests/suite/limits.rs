//! Resources that are used up, and come back.

use crate::common::{alone, library};
use pomar_fake_verbs::{FakeDevice, FakeLimits, Script, UsedUp, live, refusals};
use pomar_verbs::{Depth, Limits, QpKind, VerbsError};

fn scarce(used_up: UsedUp) -> Script {
    let limits = FakeLimits {
        protection_domains: 2,
        completion_queues: 2,
        queue_pairs: 3,
        memory_regions: 2,
        work_requests: 16,
        completion_entries: 32,
        memory_region_bytes: 1 << 20,
        used_up,
    };
    let device =
        |name: &str| FakeDevice { name: name.to_owned(), limits: limits.clone(), ..FakeDevice::default() };
    Script { devices: vec![device("fake0"), device("fake1")] }
}

const DEPTH: Depth = Depth { send: 4, receive: 4 };

#[test]
fn a_device_says_its_limits() {
    alone(&scarce(UsedUp::Enomem), || {
        let device = library().open_device("fake0").unwrap();
        let limits = Limits {
            queue_pairs: 3,
            memory_regions: 2,
            work_requests: 16,
            completion_entries: 32,
            memory_region_bytes: 1 << 20,
        };
        assert_eq!(device.limits().unwrap(), limits);
    });
}

#[test]
fn used_up_says_so_and_frees_what_was_made() {
    alone(&scarce(UsedUp::Ebusy), || {
        // Two contexts of one device share its limits; another device has its own.
        let [device, same, other] =
            ["fake0", "fake0", "fake1"].map(|name| library().open_device(name).unwrap());
        let domains = [device.protection_domain().unwrap(), same.protection_domain().unwrap()];
        let queue = device.completion_queue(8).unwrap();
        let made = live().unwrap();

        used_up(&device.protection_domain().expect_err("two domains"), "ibv_alloc_pd");
        let pairs = [(); 3].map(|()| domains[0].queue_pair(&queue, QpKind::Rc, DEPTH).unwrap());
        used_up(&domains[0].queue_pair(&queue, QpKind::Rc, DEPTH).expect_err("three"), "ibv_create_qp");
        let regions = [domains[0].register(4096).unwrap(), domains[1].register(4096).unwrap()];
        used_up(&domains[0].register(4096).expect_err("two regions"), "ibv_reg_mr");
        let queues = [same.completion_queue(1).unwrap()];
        used_up(&device.completion_queue(1).expect_err("two queues"), "ibv_create_cq");
        assert_eq!(live().unwrap(), made + 3 + 2 + 1, "failures leave nothing");
        assert_eq!(refusals(), Ok(4), "and are counted");
        drop(other.protection_domain().unwrap());

        // What is freed can be had again.
        drop((pairs, regions, queues));
        assert_eq!(live().unwrap(), made);
        drop(domains[0].queue_pair(&queue, QpKind::Rc, DEPTH).unwrap());
        drop(domains[0].register(4096).unwrap());
    });
}

fn used_up(error: &VerbsError, expected: &str) {
    let VerbsError::System { call, device, errno } = error else { panic!("{error}") };
    assert_eq!((*call, device.as_str(), errno.raw_os_error()), (expected, "fake0", Some(16)));
    let hint = "the device has no resource left; on a Mac only a reboot gives them back: nothing is retried";
    assert!(error.to_string().ends_with(hint), "{error}");
}

#[test]
fn too_little_memory_is_hinted_at() {
    alone(&scarce(UsedUp::Enomem), || {
        let domain = library().open_device("fake0").unwrap().protection_domain().unwrap();
        let regions = [domain.register(4096).unwrap(), domain.register(4096).unwrap()];
        let error = domain.register(4096).expect_err("two regions");
        if cfg!(target_os = "linux") {
            assert!(error.to_string().contains("`ulimit -l`"), "{error}");
        }
        drop(regions);
    });
}

#[test]
fn too_deep_is_refused() {
    alone(&scarce(UsedUp::Enomem), || {
        let device = library().open_device("fake0").unwrap();
        let domain = device.protection_domain().unwrap();
        let queue = device.completion_queue(32).unwrap();
        assert!(device.completion_queue(33).is_err());
        assert!(domain.queue_pair(&queue, QpKind::Rc, Depth { send: 17, receive: 1 }).is_err());
        assert!(domain.register((1 << 20) + 1).is_err());
        assert!(domain.register(0).is_err());
        let error = device.completion_queue(u32::MAX).expect_err("more than an int");
        assert!(matches!(error, VerbsError::TooBig { .. }), "{error}");
    });
}

#[test]
fn owners_keep_what_they_need() {
    alone(&Script::default(), || {
        // Dropped from the root on: a device must outlive its domains, those their regions and queue pairs.
        let device = library().open_device("fake0").unwrap();
        let domain = device.protection_domain().unwrap();
        let queue = device.completion_queue(8).unwrap();
        let pair = domain.queue_pair(&queue, QpKind::Uc, DEPTH).unwrap();
        let region = domain.register(100).unwrap();
        drop(device);
        drop(domain);
        drop(queue);
        assert_eq!(live(), Ok(5));
        drop(pair);
        assert_eq!(live(), Ok(3), "device, domain and region");
        drop(region);
        assert_eq!(live(), Ok(0));
    });
}

#[test]
fn things_of_different_devices_do_not_go_together() {
    alone(&Script::default(), || {
        let [first, second] = ["fake0", "fake1"].map(|name| library().open_device(name).unwrap());
        let queue = second.completion_queue(8).unwrap();
        let error =
            first.protection_domain().unwrap().queue_pair(&queue, QpKind::Rc, DEPTH).expect_err("strangers");
        let text = "a protection domain and a completion queue belong to different open devices; make both from the \
                    same one";
        assert_eq!(error.to_string(), text);
    });
}
