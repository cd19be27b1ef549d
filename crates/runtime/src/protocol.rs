//! What a front and its ranks say to each other, over the rank's standard input and output.
//!
//! Frames are a 4-byte little-endian length and that many bytes of postcard. The end of standard input means that
//! the front is gone, and the rank with it.

use pomar_engine::{Sampling, Step, sampler::LogProbs, split::Split};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    path::PathBuf,
};

/// Longest frame either side accepts: logits of a prompt chunk with a large vocabulary fit.
pub const MAX_FRAME_BYTES: usize = 256 << 20;

/// A request's number, chosen by the front and never used twice by one instance.
pub type RequestId = u64;

/// Everything a rank needs to start. The first frame on its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSpec {
    /// Folder or `.gguf` file.
    pub model: PathBuf,
    /// How the model is divided.
    pub split: Split,
    /// This rank.
    pub rank: usize,
    /// Threads to compute with.
    pub threads: usize,
    /// Bounds on what the rank takes on.
    pub limits: Limits,
    /// How the ranks reach each other.
    pub transport: RankTransport,
}

/// Bounds of an instance, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Longest sequence, prompt and answer, in tokens.
    pub context: usize,
    /// Pages in the KV cache of each layer; sequences share them.
    pub pages: usize,
    /// Most tokens in one step.
    pub step_tokens: usize,
    /// Most sequences that run at a time.
    pub sequences: usize,
    /// Most requests that wait for a place.
    pub waiting: usize,
}

/// The means of communication that a rank is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankTransport {
    /// There is only one rank.
    Solo,
    /// Inherited descriptors of shared memory: of all ranks, and of the stage's where it has several.
    Shm {
        /// All ranks.
        world: i32,
        /// The ranks of the stage.
        stage: Option<i32>,
    },
    /// The rank listens on loopback, says where, and is told the others' addresses by [`Command::Connect`].
    Tcp,
    /// As `Tcp`; then the data moves to RDMA.
    Rdma(RdmaCabling),
}

/// Which RDMA devices join the ranks, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaCabling {
    /// File with the device matrix (`pomar_comm::rdma::read_device_matrix`); without it, every rank has one device.
    pub matrix: Option<PathBuf>,
    /// Other queue pairs than the driver's usual ones.
    pub queue_pairs: Option<QueuePairs>,
}

/// The kinds of connected queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueuePairs {
    /// Reliable connections (RC).
    Reliable,
    /// Unreliable connections (UC).
    Unreliable,
}

/// The addresses of a TCP group, by rank, and the key its members know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpPeers {
    /// Where each rank listens.
    pub addresses: Vec<SocketAddr>,
    /// Shared secret of this instance.
    pub key: [u8; 32],
}

/// What the front tells a rank. Requests go to the leader only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// The other ranks' addresses ([`RankTransport::Tcp`]).
    Connect {
        /// All ranks.
        world: TcpPeers,
        /// The ranks of the stage, where it has several.
        stage: Option<TcpPeers>,
    },
    /// A new request.
    Submit(Request),
    /// The request is wanted no more; its place is free at once.
    Cancel(RequestId),
}

/// Whether a step's logits are asked for besides the tokens that they choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// Tokens of the answer.
    Tokens,
    /// Tokens, and the logits of every position of prompt and answer.
    Logits,
    /// Tokens, and the log-probability of every token of the prompt but the first.
    PromptLogProbs,
}

/// Tokens in, tokens out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// The prompt's token ids, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens in the answer. 0 only runs the prompt.
    pub max_tokens: usize,
    /// Tokens that end the answer; they are not part of it.
    pub stop_tokens: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Send each token's log-probability, and this many alternatives.
    pub logprobs: Option<usize>,
    /// What to send besides tokens.
    pub want: Want,
    /// Take the prompt in chunks of at most this many tokens; for tests of exactness. `None`: as large as a step.
    pub chunk: Option<usize>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// A stop token was chosen.
    Stop,
    /// `max_tokens` is reached.
    Length,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RequestEvent {
    /// The next token of the answer.
    Token {
        /// Its id.
        token: u32,
        /// Its log-probability, when asked for.
        logprobs: Option<LogProbs>,
    },
    /// Logits `[positions, vocab]` from `position` on.
    Logits {
        /// Position of the first row.
        position: usize,
        /// The rows.
        #[serde(with = "float_bytes")]
        logits: Vec<f32>,
    },
    /// Log-probabilities of the prompt's tokens from position `position` on.
    PromptLogProbs {
        /// Position of the first token scored; at least 1.
        position: usize,
        /// Natural logarithms.
        values: Vec<f32>,
    },
    /// The answer is complete. The last event.
    Finished(FinishReason),
    /// The request itself is at fault; asking again won't help. The last event.
    Invalid(String),
    /// Too many requests wait; the same may be asked again later. The last event.
    Busy(String),
    /// The ranks died or can't be started. The last event.
    Failed(String),
}

impl RequestEvent {
    /// The reason, when the request ended without being answered in full.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Invalid(reason) | Self::Busy(reason) | Self::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// True for the event after which there is none.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished(_)) || self.failure().is_some()
    }
}

/// What a rank tells the front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Where the rank listens ([`RankTransport::Tcp`]).
    Listening {
        /// For the group of all ranks.
        world: SocketAddr,
        /// For the stage's group.
        stage: Option<SocketAddr>,
    },
    /// Weights are loaded and the ranks have run a step together.
    Ready {
        /// Bytes of weights in memory.
        weight_bytes: usize,
    },
    /// Something about a request; only the leader sends it.
    Request(RequestId, RequestEvent),
    /// The rank can't go on. The last event before it exits.
    Failed(String),
}

/// What the leader tells the other ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run this step.
    Run(Step),
}

/// Floats as one run of little-endian bytes: serde would visit each by itself, which takes longer than making them.
mod float_bytes {
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&crate::rank::bytes(values))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Vec<f32>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the bytes of floats")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<f32>, E> {
                Ok(crate::rank::floats(bytes))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Writes one frame and flushes.
///
/// # Errors
/// The writer's; [`io::ErrorKind::InvalidInput`] for a frame that is too long.
pub fn write_frame<T: Serialize>(writer: &mut impl Write, value: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length as usize <= MAX_FRAME_BYTES);
    let length =
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the frame is too long"))?;
    writer.write_all(&length.to_le_bytes())?;
    writer.write_all(&bytes)?;
    writer.flush()
}

/// Reads one frame; `None` at the end of the stream.
///
/// # Errors
/// The reader's; [`io::ErrorKind::InvalidData`] for a frame that is too long, cut short or not of this type.
pub fn read_frame<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes is too long"),
        ));
    }
    // Memory grows with what arrives, not with what is announced.
    let mut bytes = Vec::new();
    reader.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_damaged_ones_are_errors() {
        let event = Event::Request(7, RequestEvent::Token { token: 3, logprobs: None });
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &event).unwrap();
        write_frame(&mut bytes, &event).unwrap();
        let mut reader = bytes.as_slice();
        assert_eq!(read_frame::<Event>(&mut reader).unwrap(), Some(event.clone()));
        assert_eq!(read_frame::<Event>(&mut reader).unwrap(), Some(event));
        assert_eq!(read_frame::<Event>(&mut reader).unwrap(), None);
        for cut in 1..bytes.len() / 2 {
            assert!(read_frame::<Event>(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(read_frame::<Event>(&mut [255; 64].as_slice()).is_err());
        assert!(read_frame::<Event>(&mut [2, 0, 0, 0, 255, 255].as_slice()).is_err());
    }
}
