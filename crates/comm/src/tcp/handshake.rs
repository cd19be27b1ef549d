//! Proving to each other, when a connection is made, that both ends belong to the same instance.
//!
//! The higher rank dials. Terms and refusals are said in the clear; everything else is the Noise protocol
//! `NNpsk0_25519_ChaChaPoly_BLAKE2s` (<https://noiseprotocol.org/noise.html>) with the instance key as pre-shared key
//! and the terms as prologue, so that both ends prove the key to each other over the same terms, and the keys of the
//! connection are gone with it:
//!
//! ```text
//! dialer   -> hello:   magic, version, ranks, from, to, sealed or not | Noise message 1: psk, e
//! acceptor -> answer:  magic, version, refusal or 0                   | Noise message 2: e, ee (unless refused)
//! dialer   -> proof:   Noise transport message 0, empty
//! acceptor -> welcome: Noise transport message 0, empty
//! ```
//!
//! Message 1 alone could be an old one sent again; the proof could not. Magic and version keep their places in all
//! versions. A refusal is not proved: whoever can change it could as well cut the connection.

use snow::{Builder, HandshakeState, StatelessTransportState};
use std::io;

const HELLO_MAGIC: [u8; 8] = *b"POMARTCP";
const ANSWER_MAGIC: [u8; 8] = *b"POMARACK";
const VERSION: u32 = 2;
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes of the clear part of a hello.
pub(super) const TERMS_BYTES: usize = 28;
/// Bytes of the clear part of an answer.
pub(super) const ANSWER_BYTES: usize = 16;
/// Bytes of each of the two handshake messages: an ephemeral key and the tag of an empty payload.
pub(super) const NOISE_BYTES: usize = 48;
pub(super) const HELLO_BYTES: usize = TERMS_BYTES + NOISE_BYTES;
/// Bytes of an empty transport message: its tag.
pub(super) const PROOF_BYTES: usize = 16;

/// The number of the transport message that proof and welcome are; each direction has its own key.
const PROOF_NUMBER: u64 = 0;
/// The number of the first message after them.
pub(super) const FIRST_NUMBER: u64 = 1;

/// A shared secret of the ranks of one instance, 32 random bytes.
pub type InstanceKey = [u8; 32];

/// Why a connection is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Some other program, or garbage.
    #[error("it does not speak this protocol")]
    NotPomar,
    /// Another version of this protocol.
    #[error("it speaks version {0} of the protocol, this rank {VERSION}; run the same pomar everywhere")]
    Version(u32),
    /// Ranks of a group of another size.
    #[error("it belongs to a group with another number of ranks; give all ranks the same addresses")]
    OtherGroup,
    /// The dialer wants to be, or to reach, a rank that it cannot.
    #[error("rank {from} looked for rank {to} at another rank's address; give all ranks the same addresses")]
    WrongRank {
        /// Who the dialer says it is.
        from: u32,
        /// Whom it looks for.
        to: u32,
    },
    /// Its key is another.
    #[error("the instance keys differ; start all ranks with the same key")]
    WrongKey,
    /// One end would encrypt the connection and the other would not.
    #[error(
        "the higher rank would have the link {}, the lower one not; declare the same plain networks on both",
        sealed_or_plain(*.dialer_seals)
    )]
    Sealing {
        /// What the dialing, higher rank wants.
        dialer_seals: bool,
    },
}

fn sealed_or_plain(seals: bool) -> &'static str {
    if seals { "sealed" } else { "plain" }
}

impl HandshakeError {
    /// As it travels in an answer. What has no number is not answered, or answered by the version alone.
    fn code(self) -> Option<u32> {
        match self {
            Self::NotPomar => None,
            Self::Version(_) | Self::OtherGroup => Some(1),
            Self::WrongRank { .. } => Some(2),
            Self::WrongKey => Some(3),
            Self::Sealing { .. } => Some(4),
        }
    }

    /// The reverse, for the dialer that offered `terms`.
    fn from_code(code: u32, terms: &Terms) -> Self {
        match code {
            1 => Self::OtherGroup,
            2 => Self::WrongRank { from: terms.from, to: terms.to },
            3 => Self::WrongKey,
            4 => Self::Sealing { dialer_seals: terms.sealed },
            _ => Self::NotPomar,
        }
    }
}

/// What a dialer offers: who talks to whom in a group of which size, and whether all that follows will be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) size: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) sealed: bool,
}

impl Terms {
    fn to_bytes(self) -> [u8; TERMS_BYTES] {
        let mut bytes = [0; TERMS_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        let words = [VERSION, self.size, self.from, self.to, u32::from(self.sealed)];
        for (field, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The terms in a hello to rank `own` of `size`.
    pub(super) fn read(bytes: &[u8; TERMS_BYTES], own: u32, size: u32) -> Result<Self, HandshakeError> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes[..8] != HELLO_MAGIC {
            return Err(HandshakeError::NotPomar);
        }
        if word(8) != VERSION {
            return Err(HandshakeError::Version(word(8)));
        }
        let terms = Self { size: word(12), from: word(16), to: word(20), sealed: word(24) == 1 };
        if word(24) > 1 {
            return Err(HandshakeError::NotPomar);
        }
        if terms.size != size {
            return Err(HandshakeError::OtherGroup);
        }
        if terms.to != own || terms.from <= own || terms.from >= size {
            return Err(HandshakeError::WrongRank { from: terms.from, to: terms.to });
        }
        Ok(terms)
    }
}

/// The clear part of an answer that refuses nothing.
pub(super) fn agreement() -> [u8; ANSWER_BYTES] {
    answer(0)
}

/// The answer that refuses, if there is one to give.
pub(super) fn refusal(error: HandshakeError) -> Option<[u8; ANSWER_BYTES]> {
    error.code().map(answer)
}

fn answer(code: u32) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(&ANSWER_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(&code.to_le_bytes());
    bytes
}

fn builder<'k>(key: &'k InstanceKey, prologue: &'k [u8]) -> Result<Builder<'k>, snow::Error> {
    Builder::new(PATTERN.parse()?).prologue(prologue)?.psk(0, key)
}

/// What can go wrong on this side alone: no random numbers.
fn own_trouble(error: snow::Error) -> io::Error {
    io::Error::other(format!("cannot make the connection's keys: {error}"))
}

/// What the other end sent does not fit the key and the terms.
fn wrong_key(_: snow::Error) -> HandshakeError {
    HandshakeError::WrongKey
}

/// The keys of a connection whose handshake both ends have completed.
pub(super) type Keys = StatelessTransportState;

/// The dialing side, after its hello.
pub(super) struct Dialer {
    terms: Terms,
    noise: HandshakeState,
}

impl Dialer {
    /// Begins a conversation; gives the hello to send.
    pub(super) fn new(key: &InstanceKey, terms: Terms) -> io::Result<(Self, [u8; HELLO_BYTES])> {
        let mut hello = [0; HELLO_BYTES];
        let (clear, message) = hello.split_at_mut(TERMS_BYTES);
        clear.copy_from_slice(&terms.to_bytes());
        let mut noise =
            builder(key, clear).and_then(|builder| builder.build_initiator()).map_err(own_trouble)?;
        noise.write_message(&[], message).map_err(own_trouble)?;
        Ok((Self { terms, noise }, hello))
    }

    /// Checks the clear part of the answer.
    pub(super) fn check_answer(&self, answer: &[u8; ANSWER_BYTES]) -> Result<(), HandshakeError> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| answer[at + i]));
        if answer[..8] != ANSWER_MAGIC {
            return Err(HandshakeError::NotPomar);
        }
        if word(8) != VERSION {
            return Err(HandshakeError::Version(word(8)));
        }
        match word(12) {
            0 => Ok(()),
            code => Err(HandshakeError::from_code(code, &self.terms)),
        }
    }

    /// Checks the acceptor's message; gives the keys and the proof to send.
    pub(super) fn finish(
        mut self,
        message: &[u8; NOISE_BYTES],
    ) -> Result<(Keys, [u8; PROOF_BYTES]), HandshakeError> {
        self.noise.read_message(message, &mut []).map_err(wrong_key)?;
        let keys = self.noise.into_stateless_transport_mode().map_err(wrong_key)?;
        let mut proof = [0; PROOF_BYTES];
        keys.write_message(PROOF_NUMBER, &[], &mut proof).map_err(wrong_key)?;
        Ok((keys, proof))
    }
}

/// The accepting side, after the hello that it agreed to.
pub(super) struct Acceptor {
    keys: Keys,
}

impl Acceptor {
    /// Checks the dialer's message under `terms`; gives this side's own message.
    ///
    /// # Errors
    /// The outer one is this machine's; the inner one is the dialer's.
    pub(super) fn new(
        key: &InstanceKey,
        terms: Terms,
        message: &[u8; NOISE_BYTES],
    ) -> io::Result<Result<(Self, [u8; NOISE_BYTES]), HandshakeError>> {
        let prologue = terms.to_bytes();
        let mut noise =
            builder(key, &prologue).and_then(|builder| builder.build_responder()).map_err(own_trouble)?;
        if let Err(error) = noise.read_message(message, &mut []) {
            return Ok(Err(wrong_key(error)));
        }
        let mut answer = [0; NOISE_BYTES];
        noise.write_message(&[], &mut answer).map_err(own_trouble)?;
        let keys = noise.into_stateless_transport_mode().map_err(own_trouble)?;
        Ok(Ok((Self { keys }, answer)))
    }

    /// Checks the proof; gives the keys and the welcome to send.
    pub(super) fn finish(
        self,
        proof: &[u8; PROOF_BYTES],
    ) -> Result<(Keys, [u8; PROOF_BYTES]), HandshakeError> {
        check_proof(&self.keys, proof)?;
        let mut welcome = [0; PROOF_BYTES];
        self.keys.write_message(PROOF_NUMBER, &[], &mut welcome).map_err(wrong_key)?;
        Ok((self.keys, welcome))
    }
}

/// Checks the dialer's proof or the acceptor's welcome.
pub(super) fn check_proof(keys: &Keys, proof: &[u8; PROOF_BYTES]) -> Result<(), HandshakeError> {
    keys.read_message(PROOF_NUMBER, proof, &mut [0; PROOF_BYTES]).map(|_| ()).map_err(wrong_key)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const TERMS: Terms = Terms { size: 3, from: 2, to: 0, sealed: true };
    const KEY: InstanceKey = [1; 32];
    const OTHER_KEY: InstanceKey = [2; 32];

    fn parts(hello: &[u8; HELLO_BYTES]) -> ([u8; TERMS_BYTES], [u8; NOISE_BYTES]) {
        (std::array::from_fn(|i| hello[i]), std::array::from_fn(|i| hello[TERMS_BYTES + i]))
    }

    fn accepted(hello: &[u8; HELLO_BYTES]) -> Result<(Acceptor, [u8; NOISE_BYTES]), HandshakeError> {
        let (terms, message) = parts(hello);
        Acceptor::new(&KEY, Terms::read(&terms, 0, 3)?, &message).unwrap()
    }

    /// Keys of both ends of a connection: the dialer's, the acceptor's.
    pub(in super::super) fn both_keys() -> (Keys, Keys) {
        let (dialer, hello) = Dialer::new(&KEY, TERMS).unwrap();
        let (acceptor, message) = accepted(&hello).unwrap();
        let (dialer_keys, proof) = dialer.finish(&message).unwrap();
        let (acceptor_keys, welcome) = acceptor.finish(&proof).unwrap();
        check_proof(&dialer_keys, &welcome).unwrap();
        (dialer_keys, acceptor_keys)
    }

    #[test]
    fn ranks_with_one_key_meet_and_share_keys() {
        let (dialer, acceptor) = both_keys();
        let (mut sealed, mut open) = ([0; 64], [0; 64]);
        let bytes = dialer.write_message(FIRST_NUMBER, b"hello", &mut sealed).unwrap();
        let bytes = acceptor.read_message(FIRST_NUMBER, &sealed[..bytes], &mut open).unwrap();
        assert_eq!(&open[..bytes], b"hello");
    }

    #[test]
    fn each_wrong_hello_is_told_apart_by_both_sides() {
        let (dialer, good) = Dialer::new(&KEY, TERMS).unwrap();
        let refused = |at: usize, flip: u8| {
            let mut hello = good;
            hello[at] ^= flip;
            accepted(&hello).err()
        };
        let heard = |error| refusal(error).map(|answer| dialer.check_answer(&answer).unwrap_err());
        assert_eq!(refused(0, 4), Some(HandshakeError::NotPomar));
        assert_eq!(refused(24, 2), Some(HandshakeError::NotPomar), "neither sealed nor plain");
        assert_eq!(refusal(HandshakeError::NotPomar), None, "a stranger is told nothing");
        assert_eq!(refused(8, 4), Some(HandshakeError::Version(VERSION ^ 4)));
        for (at, flip, expected) in [
            (12, 4, HandshakeError::OtherGroup),
            // The same key over other terms is of no use.
            (24, 1, HandshakeError::WrongKey),
            (TERMS_BYTES, 1, HandshakeError::WrongKey),
            (HELLO_BYTES - 1, 1, HandshakeError::WrongKey),
        ] {
            assert_eq!(refused(at, flip), Some(expected));
            assert_eq!(heard(expected), Some(expected));
        }
        assert_eq!(refused(16, 4), Some(HandshakeError::WrongRank { from: 6, to: 0 }));
        assert_eq!(refused(20, 4), Some(HandshakeError::WrongRank { from: 2, to: 4 }));
        assert_eq!(
            refused(16, 2),
            Some(HandshakeError::WrongRank { from: 0, to: 0 }),
            "only higher ranks dial"
        );
        assert_eq!(
            heard(HandshakeError::WrongRank { from: 9, to: 9 }),
            Some(HandshakeError::WrongRank { from: 2, to: 0 }),
            "the dialer knows better what it asked for"
        );
        let sealing = HandshakeError::Sealing { dialer_seals: true };
        assert_eq!(heard(sealing), Some(sealing));
    }

    #[test]
    fn each_wrong_answer_is_told_apart() {
        let (dialer, hello) = Dialer::new(&KEY, TERMS).unwrap();
        let changed = |at: usize, flip: u8| {
            let mut answer = agreement();
            answer[at] ^= flip;
            dialer.check_answer(&answer).err()
        };
        assert_eq!(changed(0, 1), Some(HandshakeError::NotPomar));
        assert_eq!(changed(8, 1), Some(HandshakeError::Version(VERSION ^ 1)));
        assert_eq!(changed(15, 1), Some(HandshakeError::NotPomar), "no such refusal");
        assert_eq!(changed(0, 0), None);
        let (_, mut message) = accepted(&hello).unwrap();
        message[0] ^= 1;
        assert_eq!(dialer.finish(&message).err(), Some(HandshakeError::WrongKey));
    }

    #[test]
    fn another_key_is_noticed_at_the_first_message() {
        let (_, hello) = Dialer::new(&OTHER_KEY, TERMS).unwrap();
        assert_eq!(accepted(&hello).err(), Some(HandshakeError::WrongKey));
    }

    /// Somebody who has recorded a hello of the real dialer and sends it again.
    #[test]
    fn a_replayed_hello_gets_no_further_than_the_proof() {
        let (dialer, hello) = Dialer::new(&KEY, TERMS).unwrap();
        let (_, first_message) = accepted(&hello).unwrap();
        let (_, first_proof) = dialer.finish(&first_message).unwrap();
        let (again, message) = accepted(&hello).unwrap();
        assert_ne!(message, first_message);
        assert_eq!(again.finish(&first_proof).err(), Some(HandshakeError::WrongKey));
        let (again, _) = accepted(&hello).unwrap();
        assert_eq!(again.finish(&[0; PROOF_BYTES]).err(), Some(HandshakeError::WrongKey));
    }

    #[test]
    fn a_replayed_answer_does_not_fit_another_hello() {
        let (_, hello) = Dialer::new(&KEY, TERMS).unwrap();
        let (_, message) = accepted(&hello).unwrap();
        let (second, _) = Dialer::new(&KEY, TERMS).unwrap();
        assert_eq!(second.finish(&message).err(), Some(HandshakeError::WrongKey));
    }

    /// The dialer's own proof, sent back to it.
    #[test]
    fn a_reflected_proof_is_no_welcome() {
        let (dialer, hello) = Dialer::new(&KEY, TERMS).unwrap();
        let (_, message) = accepted(&hello).unwrap();
        let (keys, proof) = dialer.finish(&message).unwrap();
        assert_eq!(check_proof(&keys, &proof), Err(HandshakeError::WrongKey));
    }
}
