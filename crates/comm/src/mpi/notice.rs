//! What ranks tell each other besides data: signs of life, credits, verdicts, farewells.
//!
//! A notice is one MPI message of 32 bytes, little-endian, and a reason of at most 200:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..8 | kind: 1 sign of life, 2 dead, 3 broken, 4 aborted, 5 link failed, 6 farewell |
//! | 8..16 | the rank that a verdict is about, else 0; of a failed link, the other end in the upper half |
//! | 16..24 | bytes of the point-to-point channel that the sender has consumed so far |
//! | 24..32 | bytes of the collective channel, likewise |
//! | 32.. | why, for verdicts |

use super::link::CHANNELS;
use crate::verdict::{MAX_REASON_BYTES, Verdict, cut_reason};

const HEAD_BYTES: usize = 32;

/// Longest notice.
pub(super) const NOTICE_BYTES: usize = HEAD_BYTES + MAX_REASON_BYTES;

const ALIVE: u64 = 1;
const DEAD: u64 = 2;
const BROKEN: u64 = 3;
const ABORTED: u64 = 4;
const LINK_FAILED: u64 = 5;
const FAREWELL: u64 = 6;

/// What a notice says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Alive,
    Verdict(Verdict),
    Farewell,
}

/// Writes a notice into `out` and says how long it is.
pub(super) fn write(news: &News, consumed: [u64; CHANNELS], out: &mut [u8]) -> usize {
    let (kind, rank, reason) = match news {
        News::Alive => (ALIVE, 0, ""),
        News::Farewell => (FAREWELL, 0, ""),
        News::Verdict(Verdict::Dead { rank, what }) => (DEAD, *rank, what.as_str()),
        News::Verdict(Verdict::Broken { rank, what }) => (BROKEN, *rank, what.as_str()),
        News::Verdict(Verdict::LinkFailed { rank, by, what }) => {
            (LINK_FAILED, by << 32 | rank, what.as_str())
        }
        News::Verdict(Verdict::Aborted { by, reason }) => (ABORTED, *by, reason.as_str()),
    };
    let words = [kind, rank as u64, consumed[0], consumed[1]];
    for (field, word) in out.chunks_exact_mut(8).zip(words) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    let reason = cut_reason(reason).as_bytes();
    out[HEAD_BYTES..][..reason.len()].copy_from_slice(reason);
    HEAD_BYTES + reason.len()
}

/// Reads a notice; `None` when no rank of this version would have written it.
pub(super) fn read(bytes: &[u8]) -> Option<(News, [u64; CHANNELS])> {
    let (head, reason) = bytes.split_at_checked(HEAD_BYTES)?;
    let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|i| head[index * 8 + i]));
    // No group has that many ranks; a wrong rank only makes a wrong message.
    let rank = usize::try_from(word(1)).unwrap_or(usize::MAX);
    let reason = String::from_utf8_lossy(reason).into_owned();
    let news = match word(0) {
        ALIVE => News::Alive,
        FAREWELL => News::Farewell,
        DEAD => News::Verdict(Verdict::Dead { rank, what: reason }),
        BROKEN => News::Verdict(Verdict::Broken { rank, what: reason }),
        LINK_FAILED => {
            let (rank, by) = (rank & 0xffff_ffff, rank >> 32);
            News::Verdict(Verdict::LinkFailed { rank, by, what: reason })
        }
        ABORTED => News::Verdict(Verdict::Aborted { by: rank, reason }),
        _ => return None,
    };
    Some((news, [word(2), word(3)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_out_as_they_went_in() {
        let reason = "é".repeat(150);
        let link = News::Verdict(Verdict::LinkFailed { rank: 1, by: 2, what: "cut".into() });
        let cut = cut_reason(&reason).to_owned();
        for (news, expected) in [
            (News::Alive, News::Alive),
            (link.clone(), link),
            (News::Farewell, News::Farewell),
            (
                News::Verdict(Verdict::Aborted { by: 3, reason }),
                News::Verdict(Verdict::Aborted { by: 3, reason: cut }),
            ),
        ] {
            let mut bytes = [0; NOTICE_BYTES];
            let length = write(&news, [7, 1 << 40], &mut bytes);
            assert_eq!(read(&bytes[..length]), Some((expected, [7, 1 << 40])));
        }
    }

    #[test]
    fn what_is_no_notice_is_refused() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[1; 31]), None);
        assert_eq!(read(&[0; 32]), None);
    }
}
