//! Threads as ranks over one segment.
use pomar_comm::{Group, GroupOptions, Segment, ShmGroup};

#[test]
fn ranks_add_and_talk() {
    for size in 1..=4 {
        let segment = Segment::create(size).unwrap();
        std::thread::scope(|scope| {
            for rank in 0..size {
                let fd = segment.try_clone_fd().unwrap();
                scope.spawn(move || {
                    let group = ShmGroup::attach(fd, rank, size, GroupOptions::default()).unwrap();
                    for n in [0, 1, 7, 1000, 100_000, 800_000] {
                        let mut data: Vec<i64> = (0..n).map(|i| i * (rank as i64 + 1)).collect();
                        group.all_sum(data.as_mut_slice().into()).unwrap();
                        let factor = (size * (size + 1) / 2) as i64;
                        assert!(data.iter().zip(0..).all(|(v, i)| *v == i * factor));
                    }
                    let next = (rank + 1) % size;
                    if size > 1 {
                        group.send_message(next, &[rank as u8; 5000]).unwrap();
                        let mut message = vec![];
                        let before = (rank + size - 1) % size;
                        group.recv_message(before, &mut message).unwrap();
                        assert_eq!(message, [before as u8; 5000]);
                    }
                    group.barrier().unwrap();
                });
            }
        });
    }
}
