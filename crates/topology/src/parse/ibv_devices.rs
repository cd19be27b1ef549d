//! `ibv_devices`: two lines of heading, then a device and its GUID in each line. The same on macOS and Linux.
//!
//! ```text
//!     device                 node GUID
//!     ------              ----------------
//!     rdma_en3            9016a1b2c3d4e5f6
//! ```

use super::{MAX_ITEMS, name};

/// The devices' names, in the order of the list. Text that is no list has none.
pub fn parse(text: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("---")).skip(1);
    rows.filter_map(|line| line.split_whitespace().next().and_then(name)).take(MAX_ITEMS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heading_and_strange_names_are_left_out() {
        let text = "\
            \tdevice\t\t  \t   node GUID\n\
            \t------\t\t  \t----------------\n\
            \trdma_en3\t\t\t9016a\n\
            \n\
            \trdma_en4\t9116a\n\
            \t$(x)\t1\n\
            ";
        assert_eq!(parse(text), ["rdma_en3", "rdma_en4"]);
        assert!(parse("No IB devices found\n").is_empty());
    }
}
