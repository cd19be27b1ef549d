//! The hosts and cables in the language of Graphviz: `pomar topology ... --dot | dot -Tsvg`.

use crate::{Cabling, End, Host, rdma::carries_rdma};
use std::fmt::Write;

/// A drawing: thick lines carry RDMA, dashed ones do not.
pub fn dot(hosts: &[Host], cabling: &Cabling) -> String {
    let mut text = String::from("graph pomar {\n  node [shape=box];\n");
    // Writing to a String cannot fail.
    for host in hosts {
        let kind = host.model.as_deref().map_or(String::new(), |model| format!("{model}, "));
        let label = [host.name.clone(), format!("{kind}{}", host.system)];
        _ = writeln!(text, "  {} [label={}];", quoted(&[&host.name]), quoted(&label));
    }
    for cable in &cabling.cables {
        let [a, b] = cable.ends.map(|end| quoted(&[&hosts[end.host].name]));
        let style = if carries_rdma(hosts, cable) { "penwidth=2" } else { "style=dashed" };
        let labels = [("taillabel", cable.ends[0]), ("headlabel", cable.ends[1])]
            .map(|(name, end)| format!("{name}={}", quoted(&[end_label(hosts, end)])));
        let speed = quoted(&[cable.speed(hosts)]);
        _ = writeln!(text, "  {a} -- {b} [label={speed}, {}, {}, {style}];", labels[0], labels[1]);
    }
    text + "}\n"
}

/// Port and interface, such as `2 en3`.
fn end_label(hosts: &[Host], end: End) -> String {
    let port = end.port(hosts);
    let words = [port.receptacle.as_deref(), port.interface.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A string of Graphviz with a line for each part.
fn quoted(lines: &[impl AsRef<str>]) -> String {
    let escaped = |line: &str| line.replace('\\', r"\\").replace('"', r#"\""#);
    let lines: Vec<_> = lines.iter().map(|line| escaped(line.as_ref())).collect();
    format!("\"{}\"", lines.join(r"\n"))
}
