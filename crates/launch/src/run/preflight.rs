//! Questions before the start: are the programs there, are the ports free, does each rank reach the next?

use super::{LaunchError, guard::Guards};
use crate::{
    Backend, Directory, Plan,
    plan::{Endpoint, Hop, Listen, Role},
    quote::{quote, quote_all},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{TcpListener, ToSocketAddrs},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

/// All answers together; a hop alone may take 5 s.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// A question for a host's guard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// Can this program be started in this folder?
    Program { folder: String, must: bool, program: String },
    /// Is this address one of the host's?
    Address(String),
    /// What happens on connecting to this address and port?
    Connect(String, u16),
}

/// The questions of one host, and the answers by number.
type Asked = BTreeMap<(usize, Question), Option<String>>;

/// Asks all hosts everything at once.
///
/// # Errors
/// [`LaunchError::Preflight`] with every reason for the launch to fail that was found.
pub(super) async fn check(plan: &Plan, guards: &mut Guards) -> Result<(), LaunchError> {
    let mut asked: Asked = questions(plan).into_iter().map(|question| (question, None)).collect();
    for (number, (host, question)) in asked.keys().enumerate() {
        guards.ask(*host, call(number, question));
    }
    collect(plan, guards, &mut asked).await;
    let mut problems = programs(plan, &asked);
    problems.extend(plan.listens.iter().filter_map(|listen| listening(plan, &asked, listen)));
    for hop in &plan.hops {
        problems.extend(reaching(plan, &asked, hop));
    }
    if problems.is_empty() { Ok(()) } else { Err(LaunchError::Preflight(problems)) }
}

fn questions(plan: &Plan) -> BTreeSet<(usize, Question)> {
    let programs = plan.processes.iter().map(|process| (process.host, program(process)));
    let there = plan.listens.iter().filter(|listen| !host_of(plan, listen.rank).1.this_machine);
    let addresses = there.filter(|listen| listen.at.address.is_plain_ip());
    let addresses = addresses
        .map(|listen| (host_of(plan, listen.rank).0, Question::Address(listen.at.address.to_string())));
    let hops = plan.hops.iter().flat_map(|hop| {
        let from = host_of(plan, hop.from).0;
        hop.at.iter().map(move |at| (from, connect(at)))
    });
    programs.chain(addresses).chain(hops).collect()
}

fn program(process: &crate::plan::Process) -> Question {
    Question::Program {
        folder: process.directory.path().into(),
        must: matches!(process.directory, Directory::Must(_)),
        program: process.command[0].clone(),
    }
}

fn connect(at: &Endpoint) -> Question {
    Question::Connect(at.address.to_string(), at.port)
}

fn host_of(plan: &Plan, rank: usize) -> (usize, &crate::plan::HostPlan) {
    let host = plan.processes[rank].host;
    (host, &plan.hosts[host])
}

/// The question as a call of the guard's script. Connecting may take long, so it is done beside the others.
fn call(number: usize, question: &Question) -> String {
    let number = number.to_string();
    match question {
        Question::Program { folder, must, program } => {
            // A line feed in a name would end the call.
            let words = ["program", &number, folder, if *must { "must" } else { "try" }, program];
            format!("nl=\"$(printf \"\\n_\")\"; nl=\"${{nl%_}}\"; {}", quote_all(&words))
        }
        Question::Address(address) => quote_all(&["address", &number, address]),
        Question::Connect(address, port) => format!("hop {number} {} {port} &", quote(address)),
    }
}

async fn collect(plan: &Plan, guards: &mut Guards, asked: &mut Asked) {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    for host in 0..plan.hosts.len() {
        let mut open = asked.keys().filter(|(of, _)| *of == host).count();
        while open > 0 {
            let Ok(Some(reply)) = timeout_at(deadline, guards.reply(host)).await else { break };
            let mut words = reply.splitn(3, ' ');
            let number = words.nth(1).and_then(|number| number.parse::<usize>().ok());
            let answer = number.and_then(|number| asked.values_mut().nth(number));
            if let (Some(answer), Some(text)) = (answer, words.next()) {
                *answer = Some(text.into());
                open -= 1;
            }
        }
    }
}

fn programs(plan: &Plan, asked: &Asked) -> Vec<String> {
    let mut problems = BTreeSet::new();
    for process in &plan.processes {
        let question = program(process);
        let host = &plan.host_of(process).name;
        let answer = asked.get(&(process.host, question)).and_then(Option::as_deref);
        let name = &process.command[0];
        match answer.map(|answer| answer.split_once(' ').unwrap_or((answer, ""))) {
            Some(("found", _)) => {}
            Some(("folder", _)) => {
                let folder = process.directory.path();
                problems.insert(format!(
                    "host {host} has no folder {folder}; make it, or choose another with --cwd"
                ));
            }
            Some(("missing", path)) => {
                problems.insert(format!(
                    "host {host} has no program '{name}' in {path}; install it there, or give its full path"
                ));
            }
            _ => {
                problems.insert(format!("host {host} did not answer"));
            }
        }
    }
    problems.into_iter().collect()
}

/// Why a rank could not listen where it must.
fn listening(plan: &Plan, asked: &Asked, listen: &Listen) -> Option<String> {
    let (host, here) = host_of(plan, listen.rank);
    let Listen { rank, at } = listen;
    let name = &here.name;
    let not_here = format!(
        "rank {rank} on host {name}: that machine has no address {}; correct the hostfile",
        at.address
    );
    if !here.this_machine {
        let answer = asked.get(&(host, Question::Address(at.address.to_string()))).and_then(Option::as_deref);
        return (answer == Some("no")).then_some(not_here);
    }
    match bind(at).err()? {
        error if error.kind() == io::ErrorKind::AddrNotAvailable => Some(not_here),
        error if error.kind() == io::ErrorKind::AddrInUse => {
            Some(format!("rank {rank} on host {name}: {at} is in use; {}", another_port(plan)))
        }
        error => Some(format!("rank {rank} on host {name}: cannot listen on {at}: {error}")),
    }
}

fn bind(at: &Endpoint) -> io::Result<()> {
    // `to_socket_addrs` reads zones as numbers only; such an address is left to the ranks.
    match (at.address.as_str(), at.port).to_socket_addrs() {
        Ok(addresses) => TcpListener::bind(addresses.collect::<Vec<_>>().as_slice()).map(drop),
        Err(_) if at.address.as_str().contains('%') => Ok(()),
        Err(error) => Err(error),
    }
}

fn another_port(plan: &Plan) -> &'static str {
    match plan.backend {
        Backend::Nccl => "end what listens there, or choose another --nccl-port",
        _ => "end what listens there, or choose another --starting-port",
    }
}

/// Why a rank could not reach another one.
fn reaching(plan: &Plan, asked: &Asked, hop: &Hop) -> Vec<String> {
    let (from, here) = host_of(plan, hop.from);
    let there = host_of(plan, hop.to).1;
    let problem = |at: &Endpoint| {
        let answer = asked.get(&(from, connect(at))).and_then(Option::as_deref);
        let why = trouble(answer.unwrap_or("137"))?;
        let (roles, to) = ([Role::Rank(hop.from), Role::Rank(hop.to)], &there.name);
        let pair = format!("{} on host {} -> {} on host {to}", roles[0], here.name, roles[1]);
        Some(match why {
            Trouble::InUse => format!("{pair}: {at} is in use already; {}", another_port(plan)),
            Trouble::Unreachable(why) => format!(
                "{pair}: {at} cannot be reached ({why}); check the address, the cable and the firewalls of both"
            ),
        })
    };
    let problems: Vec<String> = hop.at.iter().filter_map(problem).collect();
    if hop.any && problems.len() < hop.at.len() { Vec::new() } else { problems }
}

/// What is wrong with a connection.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    /// Somebody accepted it.
    InUse,
    /// Nobody answered, or somebody said no on the way.
    Unreachable(String),
}

/// What an answer, the status and words of a connecting bash, means. A refused connection is what is hoped for: the
/// machine is there, and nobody listens yet. Without bash nothing is known.
fn trouble(answer: &str) -> Option<Trouble> {
    let (status, words) = answer.split_once(' ').unwrap_or((answer, ""));
    match status {
        "0" => Some(Trouble::InUse),
        "127" => None,
        "137" => Some(Trouble::Unreachable("no answer within 5 s".into())),
        _ if words.contains("refused") => None,
        _ => {
            let reason = words.rsplit_once(": ").map_or(words, |(_, reason)| reason);
            Some(Trouble::Unreachable(reason.trim().into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Trouble, trouble};

    #[test]
    fn answers_of_a_connecting_shell() {
        let unreachable = |why: &str| Some(Trouble::Unreachable(why.into()));
        let cases = [
            ("1 10.0.0.1: connect: Connection refused", None),
            ("127 pomar-launch: bash: not found", None),
            ("0 ", Some(Trouble::InUse)),
            ("137 ", unreachable("no answer within 5 s")),
            ("1 pomar-launch: connect: No route to host", unreachable("No route to host")),
            ("1 pomar-launch: c.local: Name or service not known", unreachable("Name or service not known")),
        ];
        for (answer, meaning) in cases {
            assert_eq!(trouble(answer), meaning, "{answer}");
        }
    }
}
