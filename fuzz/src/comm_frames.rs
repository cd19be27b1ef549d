//! The bytes that a peer sends over a TCP connection between ranks.

use pomar_comm::tcp::{FRAME_HEADER_BYTES, MAX_PAYLOAD, fuzz_frames, parse_frame_header};

/// Sizes of the pieces in which a stream arrives.
const STEPS: [usize; 4] = [1, 7, FRAME_HEADER_BYTES, 1000];

/// `bytes` is everything a peer sends.
///
/// # Panics
/// When a header that was accepted is not the one that is written for it, or it matters where a short stream is
/// cut.
pub fn comm_frames(bytes: &[u8]) {
    if let Ok(header) = parse_frame_header(bytes) {
        assert!(header.length as usize <= MAX_PAYLOAD);
        assert_eq!(header.to_bytes(), bytes[..FRAME_HEADER_BYTES]);
    }
    let ends = STEPS.map(|step| fuzz_frames(bytes, step));
    // A longer stream may overrun its window in large pieces and not in small ones.
    if bytes.len() <= STEPS[3] {
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    }
}
