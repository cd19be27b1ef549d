//! A page of plans on standard output: `cargo run -p pomar-report --example page > page.html`. With `budget` the page of a
//! budget, with `timeline` a picture.

use pomar_plan::{
    Catalogue, Cluster, Format, Goal, Link, Node, Setting, Workload,
    answer::{answer, weight_bytes},
    backend, budget,
};
use pomar_report::{Bar, BarKind, Heading};

const MACHINES: [&str; 4] = ["m3-ultra-512", "m3-ultra-512", "m4-max-128", "dgx-spark"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page = match std::env::args().nth(1).as_deref() {
        Some("budget") => offers()?,
        Some("timeline") => timeline()?,
        _ => plans()?,
    };
    println!("{page}");
    Ok(())
}

fn workload() -> Workload {
    Workload { context: 32_768.0, users: 4.0, depth: 1024.0, prompt: 8192.0 }
}

fn plans() -> Result<String, Box<dyn std::error::Error>> {
    let catalogue = Catalogue::built_in();
    let (model, format) = (catalogue.model("deepseek-v3.1")?, Format::bits(4.0));
    let node = |name: &&str| Ok(Node { name: name.to_string(), machine: catalogue.machine(name)? });
    let nodes = MACHINES.iter().map(node).collect::<Result<Vec<_>, pomar_plan::CatalogueError>>()?;
    let cluster = Cluster::uniform(nodes, Some(Link::named("10gbe-tcp")?));
    let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend::MLX };
    let heading = Heading {
        model: model.id.clone(),
        format: format.name.clone(),
        weights: weight_bytes(&model, &format),
        machines: MACHINES.map(String::from).to_vec(),
        link: Some("10gbe-tcp".into()),
        backend: "mlx".into(),
        context: workload().context,
        users: workload().users,
        prompt: workload().prompt,
        catalogue_date: pomar_plan::catalogue::DATE.into(),
    };
    let answer = answer(&setting, &workload(), Goal::Decode, 5);
    Ok(pomar_report::plans(&heading, &setting, &workload(), Goal::Decode, &answer)?)
}

fn offers() -> Result<String, Box<dyn std::error::Error>> {
    let catalogue = Catalogue::built_in();
    let (model, format, dollars) = (catalogue.model("llama-3.3-70b")?, Format::bits(4.0), 12_000.0);
    let heading = Heading {
        model: model.id.clone(),
        format: format.name.clone(),
        weights: weight_bytes(&model, &format),
        backend: "usual".into(),
        context: workload().context,
        users: workload().users,
        prompt: workload().prompt,
        catalogue_date: pomar_plan::catalogue::DATE.into(),
        ..Heading::default()
    };
    let offers = budget::offers(&catalogue, &model, &format, &workload(), dollars, None);
    Ok(pomar_report::offers(&heading, dollars, &offers)?)
}

fn timeline() -> Result<String, Box<dyn std::error::Error>> {
    let machines = ["m3-ultra-512 #1", "m3-ultra-512 #2"].map(String::from);
    let bar = |lane, kind, item: usize, start: f64, length: f64| {
        let start = start + item as f64 * 0.4;
        Bar { lane, kind, item, start, end: start + length }
    };
    let of_chunk = |item| {
        [
            bar(0, BarKind::Compute, item, 0.0, 0.3),
            bar(0, BarKind::Hop, item, 0.3, 0.05),
            bar(1, BarKind::Compute, item, 0.35, 0.3),
            bar(1, BarKind::Collective, item, 0.65, 0.04),
        ]
    };
    let bars: Vec<Bar> = (0..4).flat_map(of_chunk).collect();
    Ok(pomar_report::timeline("A prompt in four chunks", &machines, &bars, 2.0)?)
}
