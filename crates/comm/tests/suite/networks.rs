//! Groups over several interfaces: which address is taken, what is encrypted, and what tampering does.
//!
//! Each test runs in network namespaces of its own, which end with its threads. That needs root (or CAP_SYS_ADMIN) and
//! the `ip` command.

use crate::common::{KEY, listen};
use pomar_comm::{CommError, Group, GroupOptions, TcpGroup, TcpListenerHandle, parse_address};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

/// Text that nobody on the way may read.
const SECRET: &[u8; 32] = b"the activations of a secret text";

/// This machine's address on a cable that ends at nobody's machine.
const HERE: &str = "10.78.0.1";

/// An address at the other end of it: what is sent there is lost.
const NOWHERE: &str = "10.78.0.9";

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    let status = status.unwrap_or_else(|error| panic!("ip: {error}; apt-get install iproute2"));
    assert!(status.success(), "ip {words}: {status}");
}

/// Runs `body` on a thread in a network namespace that has nothing but a loopback interface.
fn in_own_network<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::spawn(move || {
        // SAFETY: plain integers; only this thread, and those it starts, move to the new namespace.
        let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(answer, 0, "a network namespace: {}; run the tests as root", io::Error::last_os_error());
        ip("link set lo up");
        body()
    })
}

/// Like [`in_own_network`], with a cable at [`HERE`] that leads nowhere.
fn beside_a_dead_end(body: impl FnOnce() + Send + 'static) {
    let ended = in_own_network(|| {
        ip("link add end0 type veth peer name end1");
        ip("link set end0 up");
        ip("link set end1 up");
        ip(&format!("addr add {HERE}/24 dev end0"));
        // Without a card's address there would be an error instead of silence.
        ip(&format!("neigh add {NOWHERE} lladdr 02:00:00:00:00:09 dev end0 nud permanent"));
        body();
    });
    ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn at(text: &str) -> SocketAddr {
    parse_address(text, 0).unwrap()
}

fn nowhere() -> SocketAddr {
    parse_address(NOWHERE, 7000).unwrap()
}

/// An address of this machine where nobody listens.
fn refused_at(address: SocketAddr) -> SocketAddr {
    TcpListenerHandle::bind(&[address]).unwrap().addresses()[0]
}

type Joined = Result<TcpGroup, CommError>;

/// Two ranks on two threads in this thread's namespace. Each is given its own addresses of both.
fn join_two(
    listeners: Vec<TcpListenerHandle>,
    addresses: &[Vec<SocketAddr>],
    options: [GroupOptions; 2],
) -> [Joined; 2] {
    let threads: Vec<_> = listeners
        .into_iter()
        .zip(options)
        .enumerate()
        .map(|(rank, (listener, options))| {
            let addresses = addresses.to_vec();
            thread::spawn(move || TcpGroup::connect(listener, rank, &addresses, &KEY, options))
        })
        .collect();
    let [first, second] = threads.try_into().unwrap();
    [first.join().unwrap(), second.join().unwrap()]
}

fn defaults() -> [GroupOptions; 2] {
    [GroupOptions::default(), GroupOptions::default()]
}

fn with_cable(network: &str) -> GroupOptions {
    GroupOptions { plain_networks: vec![network.parse().unwrap()], ..GroupOptions::default() }
}

/// Sends [`SECRET`] up and back down.
fn talk(groups: &[TcpGroup; 2]) {
    let mut heard = [0; SECRET.len()];
    groups[0].send(1, SECRET).unwrap();
    groups[1].recv(0, &mut heard).unwrap();
    groups[1].send(0, &heard).unwrap();
    groups[0].recv(1, &mut heard).unwrap();
    assert_eq!(&heard, SECRET);
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn the_first_address_that_proves_itself_is_taken() {
    beside_a_dead_end(|| {
        let (listeners, mut addresses) = listen(2, at("127.0.0.1"));
        // One that swallows everything, one that refuses, one where a stranger listens.
        let stranger = TcpListener::bind(HERE.to_owned() + ":0").unwrap();
        thread::spawn({
            let stranger = stranger.try_clone().unwrap();
            move || stranger.incoming().for_each(|socket| drop(socket.unwrap().write_all(&[0; 100])))
        });
        let dead = [nowhere(), refused_at(at(HERE)), stranger.local_addr().unwrap()];
        addresses[0].splice(0..0, dead);
        let [lower, higher] = join_two(listeners, &addresses, defaults());
        let groups = [lower.unwrap(), higher.unwrap()];
        talk(&groups);
        assert!(!groups[0].is_sealed(1) && !groups[1].is_sealed(0), "it took the loopback address");
    });
}

#[test]
fn when_no_address_leads_to_a_rank_all_that_was_tried_is_told() {
    beside_a_dead_end(|| {
        let (mut listeners, mut addresses) = listen(2, at("127.0.0.1"));
        let refused = refused_at(at(HERE));
        addresses[0] = vec![refused, nowhere()];
        let options = GroupOptions { join_deadline: Duration::from_millis(2500), ..GroupOptions::default() };
        let error = TcpGroup::connect(listeners.pop().unwrap(), 1, &addresses, &KEY, options).unwrap_err();
        let expected = format!(
            "rank 1 found no way to rank 0 within 2.5s ({refused}: connection refused; {NOWHERE}:7000: no answer within "
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(error.rank(), Some(0));
    });
}

#[test]
fn a_rank_listens_at_several_addresses_of_both_families() {
    beside_a_dead_end(|| {
        let ears = [at("127.0.0.1"), at("127.0.0.2"), at("::1"), at(HERE)];
        for (choice, sealed) in [(1, false), (2, false), (3, true)] {
            let (mut listeners, mut addresses) = listen(2, at("::1"));
            listeners[0] = TcpListenerHandle::bind(&ears).unwrap();
            addresses[0] = vec![listeners[0].addresses()[choice]];
            let [lower, higher] = join_two(listeners, &addresses, defaults());
            let groups = [lower.unwrap(), higher.unwrap()];
            talk(&groups);
            assert_eq!([groups[0].is_sealed(1), groups[1].is_sealed(0)], [sealed; 2], "{}", ears[choice]);
        }
    });
}

#[test]
fn addresses_that_cannot_be_used_are_refused_with_a_reason() {
    beside_a_dead_end(|| {
        let error = TcpListenerHandle::bind(&[at("127.0.0.1"), at("10.99.0.1:7000")]).unwrap_err();
        assert!(error.to_string().starts_with("cannot listen at 10.99.0.1:7000: "), "{error}");
        let link_local: SocketAddr = "[fe80::1]:7000".parse().unwrap();
        for (address, words) in [
            (at("0.0.0.0:7000"), "0.0.0.0:7000 of rank 0 can be listened to but not dialed"),
            (at("127.0.0.1:0"), "127.0.0.1:0 of rank 0 can be listened to but not dialed"),
            (
                link_local,
                "does not say which interface of this machine leads to it; write it as [fe80::1%eth0]:7000",
            ),
        ] {
            let listener = TcpListenerHandle::bind(&[at("127.0.0.1")]).unwrap();
            let addresses = [vec![address], vec![]];
            let error =
                TcpGroup::connect(listener, 1, &addresses, &KEY, GroupOptions::default()).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    });
}

#[test]
fn ranks_that_disagree_about_encryption_do_not_meet() {
    for (lower, higher, words) in [
        (with_cable("10.78.0.0/24"), GroupOptions::default(), "sealed"),
        (GroupOptions::default(), with_cable("10.78.0.0/24"), "plain"),
    ] {
        beside_a_dead_end(move || {
            let (listeners, addresses) = listen(2, at(HERE));
            let [lower, higher] = join_two(listeners, &addresses, [lower, higher]).map(Result::unwrap_err);
            let expected = format!(
                "the higher rank would have the link {words}, the lower one not; declare the same plain networks on both"
            );
            for (error, pair) in [(lower, "rank 0 and rank 1"), (higher, "rank 1 and rank 0")] {
                let error = error.to_string();
                assert!(error.contains(&expected) && error.contains(pair), "{error}");
            }
        });
    }
}

/// Everything that crosses one interface of this thread's namespace.
struct Wire(OwnedFd);

impl Wire {
    fn tap(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain integers.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::c_int::from(protocol))
        };
        assert!(fd >= 0, "a packet socket: {}", io::Error::last_os_error());
        // SAFETY: just made, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let SocketAddr::V6(on) = at(&format!("fe80::1%{interface}")) else { panic!("IPv6") };
        // SAFETY: integers only, for which zeros are good values.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = on.scope_id() as libc::c_int;
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an address of the type and length that packet sockets take.
        let answer = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    /// The packets so far, one after the other.
    fn packets(&self) -> Vec<u8> {
        let (mut all, mut packet) = (vec![], vec![0; 70_000]);
        loop {
            // SAFETY: a buffer with its length.
            let bytes =
                unsafe { libc::recv(self.0.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
            let Ok(bytes) = usize::try_from(bytes) else { return all };
            all.extend_from_slice(&packet[..bytes]);
        }
    }
}

/// Number of the calling thread, as the kernel counts them.
fn thread_number() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Two ranks in two namespaces with a cable between: fe80::1 on `left`, fe80::2 on `right`. Gives all that crossed the
/// cable, and whether it was sealed.
fn over_a_cable(options: fn(&str) -> GroupOptions) -> (Vec<u8>, bool) {
    let (tell_thread, thread_of_right) = mpsc::channel();
    let (tell_plugged, plugged) = mpsc::channel();
    let (tell_address, address_of_right) = mpsc::channel();
    let (tell_done, done) = mpsc::channel::<()>();
    let right = in_own_network(move || {
        tell_thread.send(thread_number()).unwrap();
        plugged.recv().unwrap();
        ip("addr add fe80::2/64 dev right nodad");
        ip("link set right up");
        let listener = TcpListenerHandle::bind(&[at("fe80::2%right")]).unwrap();
        tell_address.send(listener.addresses()[0].port()).unwrap();
        // As the lower one, it dials nobody.
        let addresses = [listener.addresses().to_vec(), vec![]];
        let group = TcpGroup::connect(listener, 0, &addresses, &KEY, options("right")).unwrap();
        let mut heard = [0; SECRET.len()];
        group.recv(1, &mut heard).unwrap();
        group.send(1, &heard).unwrap();
        done.recv().unwrap_err();
    });
    let left = in_own_network(move || {
        let right = thread_of_right.recv().unwrap();
        ip(&format!("link add left type veth peer name right netns {right}"));
        ip("addr add fe80::1/64 dev left nodad");
        ip("link set left up");
        tell_plugged.send(()).unwrap();
        let wire = Wire::tap("left");
        let port = address_of_right.recv().unwrap();
        let listener = TcpListenerHandle::bind(&[at("fe80::1%left")]).unwrap();
        let addresses = [vec![at(&format!("[fe80::2%left]:{port}"))], listener.addresses().to_vec()];
        let group = TcpGroup::connect(listener, 1, &addresses, &KEY, options("left")).unwrap();
        group.send(0, SECRET).unwrap();
        let mut heard = [0; SECRET.len()];
        group.recv(0, &mut heard).unwrap();
        assert_eq!(&heard, SECRET);
        drop(tell_done);
        (wire.packets(), group.is_sealed(0))
    });
    let seen = left.join().unwrap();
    right.join().unwrap();
    seen
}

#[test]
fn between_machines_nothing_readable_crosses_the_wire() {
    let (packets, sealed) = over_a_cable(|_| GroupOptions::default());
    assert!(sealed && contains(&packets, b"POMARTCP"), "the tap saw the hello");
    assert!(!contains(&packets, &SECRET[..8]) && !contains(&packets, b"PMRF"));
}

#[test]
fn a_declared_cable_is_plain() {
    let (packets, sealed) = over_a_cable(|interface| with_cable(&format!("fe80::%{interface}/64")));
    assert!(!sealed && contains(&packets, SECRET) && contains(&packets, b"PMRF"));
}

/// What somebody in the middle does to the records that go from rank 1 to rank 0, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mischief {
    Nothing,
    FlipABit,
    FlipALengthBit,
    Repeat,
    Swap,
    LeaveOut,
}

/// Somebody in the middle.
#[derive(Clone)]
struct Proxy {
    seen: Arc<Mutex<Vec<u8>>>,
    mischief: Mischief,
    armed: Arc<AtomicBool>,
}

/// What the dialer says before its first record: hello and proof.
const DIALER_HANDSHAKE: usize = 76 + 16;

impl Proxy {
    /// Stands before `door`; gives its own address.
    fn start(mischief: Mischief, door: SocketAddr) -> (Self, SocketAddr) {
        let proxy = Self { seen: Arc::default(), mischief, armed: Arc::default() };
        let listener = TcpListener::bind(SocketAddr::new(door.ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let this = proxy.clone();
        thread::spawn(move || {
            let (dialer, _) = listener.accept().unwrap();
            let acceptor = TcpStream::connect(door).unwrap();
            dialer.set_nodelay(true).unwrap();
            acceptor.set_nodelay(true).unwrap();
            let (up, down) = (this.clone(), this);
            let ends = (dialer.try_clone().unwrap(), acceptor.try_clone().unwrap());
            thread::spawn(move || up.pass_records(&dialer, &acceptor));
            thread::spawn(move || down.pass_bytes(&ends.1, &ends.0));
        });
        (proxy, address)
    }

    fn note(&self, bytes: &[u8]) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }

    fn pass_bytes(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 65536];
        loop {
            let bytes = from.read(&mut buffer)?;
            self.note(&buffer[..bytes]);
            to.write_all(&buffer[..bytes])?;
            if bytes == 0 {
                return to.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    fn pass_records(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut handshake = [0; DIALER_HANDSHAKE];
        // Not at once: the proof is only said after an answer.
        for part in [0..76, 76..DIALER_HANDSHAKE] {
            from.read_exact(&mut handshake[part.clone()])?;
            self.note(&handshake[part.clone()]);
            to.write_all(&handshake[part])?;
        }
        loop {
            let mut record = self.record(from)?;
            if self.armed.swap(false, SeqCst) {
                match self.mischief {
                    Mischief::Nothing => {}
                    Mischief::FlipABit => record[20] ^= 0x10,
                    Mischief::FlipALengthBit => record[0] ^= 1,
                    Mischief::Repeat => to.write_all(&record)?,
                    Mischief::Swap => to.write_all(&self.record(from)?)?,
                    Mischief::LeaveOut => continue,
                }
            }
            to.write_all(&record)?;
        }
    }

    fn record(&self, mut from: &TcpStream) -> io::Result<Vec<u8>> {
        let mut record = vec![0; 2];
        from.read_exact(&mut record)?;
        let length = usize::from(u16::from_le_bytes([record[0], record[1]]));
        record.resize(2 + length, 0);
        from.read_exact(&mut record[2..])?;
        self.note(&record);
        Ok(record)
    }
}

/// Two ranks with somebody in the middle.
fn with_proxy(mischief: Mischief, body: fn(&Proxy, [TcpGroup; 2])) {
    beside_a_dead_end(move || {
        let (listeners, mut addresses) = listen(2, at(HERE));
        let (proxy, address) = Proxy::start(mischief, addresses[0][0]);
        addresses[0] = vec![address];
        let [lower, higher] = join_two(listeners, &addresses, defaults());
        body(&proxy, [lower.unwrap(), higher.unwrap()]);
    });
}

#[test]
fn nobody_in_the_middle_can_read() {
    with_proxy(Mischief::Nothing, |proxy, groups| {
        talk(&groups);
        let sums = thread::scope(|scope| {
            let sum = |group: &TcpGroup| {
                // Longer than several records, and as readable as a sum of such text can be.
                let mut data: Vec<u8> = SECRET.iter().copied().cycle().take(1 << 20).collect();
                data.iter_mut().for_each(|byte| *byte &= group.rank() as u8 * 0xff);
                group.all_sum(data.as_mut_slice().into()).unwrap();
                data
            };
            let threads = groups.each_ref().map(|group| scope.spawn(move || sum(group)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(sums.iter().all(|sum| sum.chunks(SECRET.len()).all(|chunk| chunk == SECRET)));
        groups[0].send_message(1, &SECRET.repeat(10_000)).unwrap();
        let mut message = vec![];
        groups[1].recv_message(0, &mut message).unwrap();
        assert_eq!(message, SECRET.repeat(10_000));
        let seen = proxy.seen.lock().unwrap();
        assert!(seen.len() > 2 << 20, "all went through the middle");
        assert!(!contains(&seen, &SECRET[..8]) && !contains(&seen, b"PMRF"));
    });
}

#[test]
fn tampering_ends_the_group_with_a_named_link() {
    for mischief in
        [Mischief::FlipABit, Mischief::FlipALengthBit, Mischief::Repeat, Mischief::Swap, Mischief::LeaveOut]
    {
        with_proxy(mischief, |proxy, groups| {
            talk(&groups);
            proxy.armed.store(true, SeqCst);
            // More than one record, of which heartbeats may be some.
            (0..4).for_each(|_| groups[1].send(0, SECRET).unwrap_or_default());
            let mut heard = [0; SECRET.len()];
            let lower = (0..5).find_map(|_| groups[0].recv(1, &mut heard).err()).unwrap();
            let higher = groups[1].recv(0, &mut heard).unwrap_err();
            for (error, peer) in [(lower, 1), (higher, 0)] {
                assert!(
                    matches!(&error, CommError::LinkFailed { rank, what }
                        if *rank == peer && what.contains("does not open")),
                    "{:?}: {error}",
                    proxy.mischief
                );
            }
        });
    }
}
