//! Proving to each other, when a connection is made, that both ends belong to the same instance.
//!
//! The higher rank dials. Both prove that they hold the instance key, without showing it, over everything said so
//! far, and under different labels, so that no proof can be sent back as another:
//!
//! ```text
//! dialer   -> hello:   magic, version, ranks, from, to, group id, nonce D
//! acceptor -> answer:  nonce A, HMAC-SHA256(key, "acceptor", hello, A)
//! dialer   -> proof:   HMAC-SHA256(key, "dialer", hello, A)
//! acceptor -> welcome: HMAC-SHA256(key, "welcome", hello, A)
//! ```
//!
//! The group id is made of the key and the number of ranks: it tells a stranger's connection at the first message, and
//! nothing about the key.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const MAGIC: [u8; 8] = *b"POMARTCP";
const VERSION: u32 = 1;

pub(super) const HELLO_BYTES: usize = 72;
pub(super) const ANSWER_BYTES: usize = 64;
pub(super) const PROOF_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;
const ID_BYTES: usize = 16;

/// A shared secret of the ranks of one instance, 32 random bytes.
pub type InstanceKey = [u8; 32];

/// Why a connection is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Some other program, or garbage.
    #[error("it does not speak this protocol")]
    NotPomar,
    /// Another version of this protocol.
    #[error("it speaks version {0} of the protocol, this rank {VERSION}")]
    Version(u32),
    /// Ranks with another key, or another number of ranks.
    #[error("it belongs to another group")]
    OtherGroup,
    /// It wants to be, or to reach, a rank that it cannot.
    #[error("it is rank {from} looking for rank {to}")]
    WrongRank {
        /// Who it says it is.
        from: u32,
        /// Whom it looks for.
        to: u32,
    },
    /// It does not hold the key.
    #[error("it could not prove that it holds the instance key")]
    WrongKey,
}

/// Who talks to whom in which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) size: u32,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// One side's knowledge: the key and what has been said.
pub(super) struct Conversation {
    key: InstanceKey,
    hello: [u8; HELLO_BYTES],
    acceptor_nonce: [u8; NONCE_BYTES],
}

impl Conversation {
    /// The dialer's: makes the hello.
    pub(super) fn dial(key: &InstanceKey, pair: Pair, nonce: [u8; NONCE_BYTES]) -> Self {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MAGIC);
        for (index, word) in [VERSION, pair.size, pair.from, pair.to].into_iter().enumerate() {
            hello[8 + index * 4..12 + index * 4].copy_from_slice(&word.to_le_bytes());
        }
        hello[24..40].copy_from_slice(&group_id(key, pair.size));
        hello[40..].copy_from_slice(&nonce);
        Self { key: *key, hello, acceptor_nonce: [0; NONCE_BYTES] }
    }

    pub(super) fn hello(&self) -> &[u8; HELLO_BYTES] {
        &self.hello
    }

    /// The acceptor's: checks the hello for rank `own` of `size` and says which rank dials.
    pub(super) fn accept(
        key: &InstanceKey,
        (own, size): (u32, u32),
        hello: [u8; HELLO_BYTES],
        nonce: [u8; NONCE_BYTES],
    ) -> Result<(u32, Self), HandshakeError> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| hello[at + i]));
        let (version, ranks, from, to) = (word(8), word(12), word(16), word(20));
        if hello[..8] != MAGIC {
            return Err(HandshakeError::NotPomar);
        }
        if version != VERSION {
            return Err(HandshakeError::Version(version));
        }
        if ranks != size || hello[24..24 + ID_BYTES] != group_id(key, size) {
            return Err(HandshakeError::OtherGroup);
        }
        if to != own || from <= own || from >= size {
            return Err(HandshakeError::WrongRank { from, to });
        }
        Ok((from, Self { key: *key, hello, acceptor_nonce: nonce }))
    }

    /// The acceptor's answer to the hello.
    pub(super) fn answer(&self) -> [u8; ANSWER_BYTES] {
        let mut answer = [0; ANSWER_BYTES];
        answer[..NONCE_BYTES].copy_from_slice(&self.acceptor_nonce);
        answer[NONCE_BYTES..].copy_from_slice(&self.proof("acceptor"));
        answer
    }

    /// The dialer checks the answer and makes its own proof.
    pub(super) fn check_answer(
        &mut self,
        answer: &[u8; ANSWER_BYTES],
    ) -> Result<[u8; PROOF_BYTES], HandshakeError> {
        self.acceptor_nonce.copy_from_slice(&answer[..NONCE_BYTES]);
        self.check("acceptor", &answer[NONCE_BYTES..])?;
        Ok(self.proof("dialer"))
    }

    /// The acceptor checks the dialer's proof and makes its welcome.
    pub(super) fn check_proof(&self, proof: &[u8; PROOF_BYTES]) -> Result<[u8; PROOF_BYTES], HandshakeError> {
        self.check("dialer", proof)?;
        Ok(self.proof("welcome"))
    }

    /// The dialer checks the welcome.
    pub(super) fn check_welcome(&self, welcome: &[u8; PROOF_BYTES]) -> Result<(), HandshakeError> {
        self.check("welcome", welcome)
    }

    fn mac(&self, label: &str) -> Hmac<Sha256> {
        let mut mac = keyed(&self.key);
        mac.update(label.as_bytes());
        mac.update(&self.hello);
        mac.update(&self.acceptor_nonce);
        mac
    }

    fn proof(&self, label: &str) -> [u8; PROOF_BYTES] {
        self.mac(label).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn check(&self, label: &str, proof: &[u8]) -> Result<(), HandshakeError> {
        self.mac(label).verify_slice(proof).map_err(|_| HandshakeError::WrongKey)
    }
}

fn keyed(key: &InstanceKey) -> Hmac<Sha256> {
    match Hmac::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    }
}

fn group_id(key: &InstanceKey, size: u32) -> [u8; ID_BYTES] {
    let mut mac = keyed(key);
    mac.update(b"group id");
    mac.update(&size.to_le_bytes());
    let digest: [u8; 32] = mac.finalize().into_bytes().into();
    std::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Pair = Pair { size: 3, from: 2, to: 0 };
    const KEY: InstanceKey = [1; 32];
    const OTHER_KEY: InstanceKey = [2; 32];

    fn accepted(hello: &[u8; HELLO_BYTES]) -> Result<(u32, Conversation), HandshakeError> {
        Conversation::accept(&KEY, (0, 3), *hello, [9; 32])
    }

    fn refusal(hello: &[u8; HELLO_BYTES]) -> Option<HandshakeError> {
        accepted(hello).err()
    }

    #[test]
    fn ranks_with_one_key_meet() {
        let mut dialer = Conversation::dial(&KEY, PAIR, [8; 32]);
        let (rank, acceptor) = accepted(dialer.hello()).unwrap();
        assert_eq!(rank, 2);
        let proof = dialer.check_answer(&acceptor.answer()).unwrap();
        let welcome = acceptor.check_proof(&proof).unwrap();
        dialer.check_welcome(&welcome).unwrap();
    }

    #[test]
    fn each_wrong_hello_is_told_apart() {
        let good = *Conversation::dial(&KEY, PAIR, [8; 32]).hello();
        let changed = |at: usize| {
            let mut hello = good;
            hello[at] ^= 4;
            refusal(&hello)
        };
        assert_eq!(changed(0), Some(HandshakeError::NotPomar));
        assert_eq!(changed(8), Some(HandshakeError::Version(VERSION ^ 4)));
        assert_eq!(changed(12), Some(HandshakeError::OtherGroup));
        assert_eq!(changed(16), Some(HandshakeError::WrongRank { from: 6, to: 0 }));
        assert_eq!(changed(20), Some(HandshakeError::WrongRank { from: 2, to: 4 }));
        assert_eq!(changed(24), Some(HandshakeError::OtherGroup));
        assert_eq!(
            refusal(Conversation::dial(&OTHER_KEY, PAIR, [8; 32]).hello()),
            Some(HandshakeError::OtherGroup)
        );
    }

    /// Somebody who has seen the group id go by, but does not hold the key.
    #[test]
    fn an_eavesdropper_cannot_prove_itself() {
        let dialer = Conversation::dial(&KEY, PAIR, [8; 32]);
        let (_, acceptor) = accepted(dialer.hello()).unwrap();
        let answer = acceptor.answer();
        // The acceptor's own proof sent back is no proof of the dialer's.
        let reflected = std::array::from_fn(|i| answer[32 + i]);
        assert_eq!(acceptor.check_proof(&reflected).err(), Some(HandshakeError::WrongKey));
        assert_eq!(acceptor.check_proof(&[0; 32]).err(), Some(HandshakeError::WrongKey));
    }

    #[test]
    fn a_replayed_answer_does_not_fit_another_hello() {
        let first = Conversation::dial(&KEY, PAIR, [8; 32]);
        let (_, acceptor) = accepted(first.hello()).unwrap();
        let mut second = Conversation::dial(&KEY, PAIR, [7; 32]);
        assert_eq!(second.check_answer(&acceptor.answer()).err(), Some(HandshakeError::WrongKey));
    }
}
