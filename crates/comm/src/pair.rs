//! The ends of a channel between two ranks, whichever way it goes.
//!
//! A pair of a mesh begins on its TCP connection. It may be given RDMA cables then, at a moment when nothing is under
//! way; the connection stays for signs of life, verdicts and the farewell.

use crate::{
    CommError,
    rdma::{RdmaSink, RdmaSource},
    record::{Sink, Source},
    tcp::{TcpSink, TcpSource},
};

/// The sending end of one channel to one peer.
#[derive(Debug)]
pub(crate) enum PairSink {
    Tcp(TcpSink),
    Rdma(RdmaSink),
}

impl Sink for PairSink {
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        match self {
            Self::Tcp(sink) => sink.try_write(head, body),
            Self::Rdma(sink) => sink.try_write(head, body),
        }
    }
}

/// The receiving end of one channel from one peer.
#[derive(Debug)]
pub(crate) enum PairSource {
    Tcp(TcpSource),
    Rdma(RdmaSource),
}

impl Source for PairSource {
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        match self {
            Self::Tcp(source) => source.try_read(into),
            Self::Rdma(source) => source.try_read(into),
        }
    }
}
