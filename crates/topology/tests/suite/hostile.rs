//! Answers that no machine gives: nothing may panic, take for ever, or reach a shell or a terminal.

use crate::common::survey;
use pomar_topology::{Cabling, Probe, ProbeError, Report, Request, Source, Survey, dot};
use proptest::prelude::*;
use std::{collections::HashMap, fs};

/// Answers from memory.
#[derive(Clone)]
struct Answers(HashMap<(String, Probe), String>);

impl Answers {
    fn of(scenario: &str) -> Self {
        let mut answers = HashMap::new();
        for host in fs::read_dir(crate::common::fixture(scenario)).unwrap() {
            let host = host.unwrap();
            for probe in Probe::ALL {
                if let Ok(text) = fs::read_to_string(host.path().join(probe.file())) {
                    answers.insert((host.file_name().into_string().unwrap(), probe), text);
                }
            }
        }
        Self(answers)
    }

    fn replace(&mut self, host: &str, probe: Probe, from: &str, to: &str) {
        let text = self.0.get_mut(&(host.to_owned(), probe)).unwrap();
        assert!(text.contains(from));
        *text = text.replace(from, to);
    }

    /// Everything that is said about the hosts: nothing here may panic.
    fn everything(&self) -> String {
        let mut names: Vec<_> = self.0.keys().map(|(host, _)| host.clone()).collect();
        names.sort();
        names.dedup();
        let survey = Survey::take(self, &names);
        let report = Report::new(&survey, Request::default(), Some(&survey));
        let hosts = &survey.hosts;
        serde_json::to_string(&report).unwrap() + &dot(hosts, &Cabling::of(hosts))
    }
}

impl Source for Answers {
    fn run(&self, host: &str, probe: Probe) -> Result<String, ProbeError> {
        let answer = self.0.get(&(host.to_owned(), probe)).cloned();
        answer.ok_or_else(|| ProbeError::Missing { host: host.into(), command: probe.command() })
    }
}

#[test]
fn names_cannot_leave_their_place() {
    let mut answers = Answers::of("pair");
    answers.replace("mini-1", Probe::HardwarePorts, "Device: en4", "Device: en4;reboot");
    answers.replace("mini-2", Probe::Services, "(1) Ethernet", "(1) it's $(reboot) \u{1b}]0;x\u{7}");
    answers.replace("mini-2", Probe::Services, "Port: Ethernet", "Port: Thunderbolt 3");
    answers.replace("mini-2", Probe::Thunderbolt, "\"Mac mini\"", "\"a\\\" [x=\\u001b]\\n\"");
    let everything = answers.everything();
    assert!(!everything.contains("en4;reboot"), "{everything}");
    assert!(!everything.contains('\u{1b}') && !everything.contains("\\u001b"), "{everything}");
    // The interface of mini-1 is not known any more, so the cable gets no commands; nor does a service's name matter.
    assert!(everything.contains("no interface for Thunderbolt 3"), "{everything}");
}

#[test]
fn a_service_name_stays_in_its_quotes() {
    let mut answers = Answers::of("pair");
    answers.replace("mini-2", Probe::Services, "(1) Ethernet", "(1) it's $(reboot)");
    answers.replace("mini-2", Probe::Services, "Port: Ethernet", "Port: Thunderbolt 3");
    assert!(
        answers.everything().contains(r"-setmanual 'it'\\''s $(reboot)' 10.73.0.2"),
        "{}",
        answers.everything()
    );
}

#[test]
fn thousands_of_ports_and_lines_are_bounded() {
    let mut answers = Answers::of("pair");
    let key = |probe| ("mini-1".to_owned(), probe);
    let buses = vec!["{}"; 5000].join(",");
    answers.0.insert(key(Probe::Thunderbolt), format!("{{\"SPThunderboltDataType\": [{buses}]}}"));
    assert!(answers.everything().contains("has 5000 buses"));
    let mut answers = Answers::of("pair");
    let lines = |line: &str| line.repeat(100_000);
    answers.0.insert(key(Probe::HardwarePorts), lines("Hardware Port: Thunderbolt 1\nDevice: en5\n"));
    answers.0.insert(key(Probe::Ifconfig), lines("en5: flags=1 mtu 1\n\tinet 10.1.1.1 netmask 0xff000000\n"));
    answers.0.insert(key(Probe::IbvDevices), "----\n".to_owned() + &lines("rdma_en5 1\n"));
    assert!(answers.everything().len() < 100_000);
}

#[test]
fn domains_that_point_everywhere_are_only_cables() {
    // Every port claims to be, and to see, the same domain.
    let mut survey = survey("mesh");
    for port in survey.hosts.iter_mut().flat_map(|host| &mut host.ports) {
        port.domain = Some("AA".into());
        port.peers.iter_mut().for_each(|peer| peer.domain = "AA".into());
    }
    let report = Report::new(&survey, Request::default(), None);
    assert!(report.has_errors() && report.hostfile.is_none());
    assert!(report.checks.iter().any(|check| check.code == "same-machine"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// One answer cut off, or with other bytes in one place.
    #[test]
    fn any_damage_is_an_answer_or_an_error(
        scenario in prop::sample::select(vec!["pair", "rdma-off", "pair-and-linux", "thunderbolt-4"]),
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        with in prop::option::of("[\"\\[{0-9a-zé\n\t :_-]{0,6}"),
    ) {
        let mut answers = Answers::of(scenario);
        let mut keys: Vec<_> = answers.0.keys().cloned().collect();
        keys.sort();
        let text = answers.0.get_mut(which.get(&keys)).unwrap();
        let mut chars: Vec<char> = text.chars().collect();
        let at = place.index(chars.len());
        match with {
            Some(with) => { chars.splice(at..(at + with.len()).min(chars.len()), with.chars()); }
            None => chars.truncate(at),
        }
        *text = chars.into_iter().collect();
        answers.everything();
    }
}
