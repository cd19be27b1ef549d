//! Two ranks send a message back and forth over RDMA, check every byte and print the round trip times.
//!
//!     pingpong [--kind rc|uc] [--bytes N] [--rounds N]
//!
//! Each rank reads its place from the environment: `RANK` (0 or 1), `PEERS` (both ranks' addresses, separated by a
//! comma), `MASTER_PORT` (a TCP port of rank 0), `RDMA_DEVICE`, and `RDMA_GID_INDEX` (without it: the first
//! IPv4-mapped GID). The ends of the connection are told over TCP.

use pomar_verbs::{
    Completion, CompletionQueue, Depth, Device, Gid, Library, LocalEnd, MemoryRegion, PathMtu, QpKind,
    QueuePair, RemoteEnd,
};
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

type Answer<T> = Result<T, Box<dyn Error>>;

/// Bounds every wait.
const PATIENCE: Duration = Duration::from_secs(10);
const SEND: u64 = 1;
const RECEIVE: u64 = 2;

struct Settings {
    kind: QpKind,
    bytes: usize,
    rounds: usize,
}

impl Settings {
    fn from_arguments() -> Answer<Self> {
        let mut settings = Self { kind: QpKind::Rc, bytes: 4096, rounds: 200 };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match (name.as_str(), value.as_str()) {
                ("--kind", "rc") => settings.kind = QpKind::Rc,
                ("--kind", "uc") => settings.kind = QpKind::Uc,
                ("--bytes", number) => settings.bytes = number.parse()?,
                ("--rounds", number) => settings.rounds = number.parse()?,
                _ => return Err(format!("unknown argument {name} {value}").into()),
            }
        }
        Ok(settings)
    }
}

fn main() -> Answer<()> {
    let settings = Settings::from_arguments()?;
    let rank: usize = variable("RANK")?.parse()?;
    let library = Library::load()?;
    let device = library.open_device(&variable("RDMA_DEVICE")?)?;
    println!("{:?}\n{:?}\n{:?}", library, device.limits()?, device.port()?);
    let (gid_index, gid) = own_address(&device)?;
    println!("{} has address {gid} in row {gid_index}", device.name());

    let domain = device.protection_domain()?;
    let completions = device.completion_queue(8)?;
    let depth = Depth { send: 4, receive: 4 };
    let pair = domain.queue_pair(&completions, settings.kind, depth)?;
    // First what is sent, then what is received.
    let memory = domain.register(2 * settings.bytes)?;
    let mut table = Table { completions, pair, memory, bytes: settings.bytes, early: None };
    table.pair.init()?;
    table.post_receive()?;

    let mut control = Control::meet(rank)?;
    let packet_sequence = 0x1234 + rank as u32;
    let own = RemoteEnd { queue_pair: table.pair.number(), packet_sequence, lid: device.port()?.lid, gid };
    let remote = control.exchange(&own)?;
    let path_mtu = device.port()?.path_mtu.min(PathMtu::M1024);
    table.pair.connect(&LocalEnd { gid_index, packet_sequence, path_mtu }, &remote)?;
    control.barrier()?;

    let mut times = Vec::with_capacity(settings.rounds);
    for round in 0..settings.rounds {
        let start = Instant::now();
        if rank == 0 {
            table.send(round)?;
            table.receive(round)?;
        } else {
            table.receive(round)?;
            table.send(round)?;
        }
        times.push(start.elapsed());
    }
    // The last message must have arrived before its sender goes.
    control.barrier()?;
    times.sort();
    println!(
        "{:?}: {} round trips of {} bytes, every byte checked; least {:?}, median {:?}",
        settings.kind,
        settings.rounds,
        settings.bytes,
        times.first().ok_or("no rounds")?,
        times[times.len() / 2]
    );
    Ok(())
}

fn variable(name: &str) -> Answer<String> {
    env::var(name).map_err(|error| format!("{name}: {error}").into())
}

fn own_address(device: &Device) -> Answer<(u8, Gid)> {
    let gids = device.gids()?;
    let found = match env::var("RDMA_GID_INDEX") {
        Ok(row) => {
            let row: u8 = row.parse()?;
            gids.iter().find(|(index, _)| *index == row)
        }
        Err(_) => gids.iter().find(|(_, gid)| gid.ipv4().is_some()),
    };
    found.copied().ok_or_else(|| format!("{}: no such address among {gids:?}", device.name()).into())
}

/// A rank's end of the game: one message under way at a time, each way.
struct Table {
    completions: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
    bytes: usize,
    /// A completion that came before the one that was waited for.
    early: Option<Completion>,
}

impl Table {
    fn post_receive(&self) -> Answer<()> {
        // SAFETY: read only after its completion, in `receive`.
        unsafe { self.pair.post_receive(RECEIVE, &self.memory, self.bytes..2 * self.bytes)? };
        Ok(())
    }

    fn send(&mut self, round: usize) -> Answer<()> {
        for index in 0..self.bytes {
            // SAFETY: inside the region; the send before has completed.
            unsafe { self.memory.as_ptr().add(index).write(pattern(round, index)) };
        }
        // SAFETY: written only after its completion, in the next round.
        unsafe { self.pair.post_send(SEND, &self.memory, 0..self.bytes)? };
        self.wait(SEND)?;
        Ok(())
    }

    fn receive(&mut self, round: usize) -> Answer<()> {
        let completion = self.wait(RECEIVE)?;
        if !completion.is_receive || completion.bytes as usize != self.bytes {
            return Err(
                format!("round {round}: not a message of {} bytes: {completion:?}", self.bytes).into()
            );
        }
        for index in 0..self.bytes {
            // SAFETY: inside the region; the receive has completed, and the next one is not posted.
            let got = unsafe { self.memory.as_ptr().add(self.bytes + index).read() };
            if got != pattern(round, index) {
                return Err(format!("round {round}: byte {index} is {got}").into());
            }
        }
        self.post_receive()
    }

    /// The completion of `id`. The answer to a message may be here before the acknowledgement of the message.
    fn wait(&mut self, id: u64) -> Answer<Completion> {
        if let Some(completion) = self.early.take_if(|completion| completion.id == id) {
            return Ok(completion);
        }
        let completion = self.next()?;
        if completion.id == id {
            return Ok(completion);
        }
        self.early = Some(completion);
        let completion = self.next()?;
        if completion.id == id { Ok(completion) } else { Err(format!("not of {id}: {completion:?}").into()) }
    }

    fn next(&self) -> Answer<Completion> {
        let start = Instant::now();
        let mut found = [Completion::default()];
        while self.completions.poll(&mut found)? == 0 {
            if start.elapsed() > PATIENCE {
                return Err(format!("no completion within {PATIENCE:?}").into());
            }
            std::hint::spin_loop();
        }
        let [completion] = found;
        if !completion.status.is_ok() {
            return Err(format!("work request {}: {}", completion.id, completion.status).into());
        }
        if completion.queue_pair != self.pair.number() {
            return Err(format!("not of queue pair {}: {completion:?}", self.pair.number()).into());
        }
        Ok(completion)
    }
}

/// Differs between rounds and between neighbours.
fn pattern(round: usize, index: usize) -> u8 {
    (round * 31 + index * 7 + index / 256) as u8
}

/// The TCP connection between the ranks.
struct Control {
    reader: BufReader<TcpStream>,
}

impl Control {
    fn meet(rank: usize) -> Answer<Self> {
        let peers = variable("PEERS")?;
        let host = peers.split(',').next().unwrap_or_default();
        let port: u16 = variable("MASTER_PORT")?.parse()?;
        let stream = if rank == 0 { TcpListener::bind((host, port))?.accept()?.0 } else { dial(host, port)? };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    fn say(&mut self, line: &str) -> Answer<String> {
        writeln!(self.reader.get_mut(), "{line}")?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }

    fn exchange(&mut self, own: &RemoteEnd) -> Answer<RemoteEnd> {
        let gid = u128::from_be_bytes(own.gid.0);
        let line = format!("{} {} {} {gid}", own.queue_pair, own.packet_sequence, own.lid);
        let answer = self.say(&line)?;
        let mut words = answer.split(' ');
        let mut next = || words.next().ok_or("the peer's answer is too short");
        Ok(RemoteEnd {
            queue_pair: next()?.parse()?,
            packet_sequence: next()?.parse()?,
            lid: next()?.parse()?,
            gid: Gid(next()?.parse::<u128>()?.to_be_bytes()),
        })
    }

    fn barrier(&mut self) -> Answer<()> {
        match self.say("here")?.as_str() {
            "here" => Ok(()),
            other => Err(format!("the peer said {other:?} instead of being here").into()),
        }
    }
}

/// Rank 0 may not listen yet.
fn dial(host: &str, port: u16) -> Answer<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect((host, port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
