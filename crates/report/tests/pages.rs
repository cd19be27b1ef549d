//! Pages and pictures: what stands on them, that nothing foreign gets in, and that nothing is fetched.

use pomar_plan::{
    Backend, Catalogue, Cluster, Format, Goal, Link, Machine, Model, Node, Setting, Workload,
    answer::{Answer, answer, weight_bytes},
    backend, budget,
};
use pomar_report::{Bar, BarKind, Heading, ReportError, offers, plans, timeline};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const WORKLOAD: Workload = Workload { context: 8192.0, users: 4.0, depth: 1024.0, prompt: 4096.0 };
const HOSTILE: &str = "<script>alert('\"&')</script>\u{1}";

struct Question {
    model: Model,
    format: Format,
    cluster: Cluster,
    backend: Backend,
}

impl Question {
    fn new(model: &str, machines: &[&str]) -> Result<Self, Box<dyn std::error::Error>> {
        let catalogue = Catalogue::built_in();
        let mut nodes = Vec::new();
        for (i, id) in machines.iter().enumerate() {
            nodes.push(Node { name: format!("{id} #{}", i + 1), machine: catalogue.machine(id)? });
        }
        Ok(Self {
            model: catalogue.model(model)?,
            format: Format::bits(4.0),
            cluster: Cluster::uniform(nodes, Some(Link::named("tb5-rdma")?)),
            backend: backend::MLX,
        })
    }

    fn setting(&self) -> Setting<'_> {
        Setting { model: &self.model, format: &self.format, cluster: &self.cluster, backend: &self.backend }
    }

    fn heading(&self) -> Heading {
        Heading {
            model: self.model.id.clone(),
            format: self.format.name.clone(),
            weights: weight_bytes(&self.model, &self.format),
            machines: self.cluster.nodes().iter().map(|node| node.machine.id.clone()).collect(),
            link: Some("tb5-rdma".into()),
            backend: self.backend.id.into(),
            context: WORKLOAD.context,
            users: WORKLOAD.users,
            prompt: WORKLOAD.prompt,
            catalogue_date: "October 2026".into(),
        }
    }

    fn answer(&self, goal: Goal) -> Answer {
        answer(&self.setting(), &WORKLOAD, goal, 5)
    }

    fn page(&self, goal: Goal) -> Result<String, ReportError> {
        plans(&self.heading(), &self.setting(), &WORKLOAD, goal, &self.answer(goal))
    }
}

/// The pictures of a page, each of which must be XML by itself.
fn pictures(page: &str) -> Vec<&str> {
    let svg = |part: &'_ str| part.find("</svg>").map(|end| end + "</svg>".len());
    page.match_indices("<svg ").filter_map(|(at, _)| Some(&page[at..at + svg(&page[at..])?])).collect()
}

/// All that a picture says.
fn texts(svg: &str) -> Result<String, roxmltree::Error> {
    let document = roxmltree::Document::parse(svg)?;
    Ok(document.descendants().filter_map(|node| node.text()).map(str::trim).collect::<Vec<_>>().join("|"))
}

#[track_caller]
fn assert_sound(page: &str) {
    let foreign = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for unwanted in ["http", "<script", "<link", "src=", "@import", "url("] {
        assert!(!foreign.contains(unwanted), "{unwanted}");
    }
    let mut words = page.split(|c: char| !c.is_ascii_alphanumeric());
    let is_none = |word: &&str| word.starts_with("NaN") || ["inf", "infx", "infs", "infinity"].contains(word);
    assert_eq!(words.find(is_none), None);
    for picture in pictures(page) {
        let parsed = roxmltree::Document::parse(picture);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
}

#[track_caller]
fn assert_says(text: &str, all: &[&str]) {
    for word in all {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn a_cluster_has_plans_pictures_and_memory() -> Outcome {
    let question = Question::new("llama-3.3-70b", &["m3-ultra-512", "m3-ultra-512"])?;
    let page = question.page(Goal::Decode)?;
    assert_sound(&page);
    assert_says(
        &page,
        &[
            "<!doctype html>",
            "<html lang=\"en\">",
            "Plans for llama-3.3-70b",
            "2 x m3-ultra-512",
            "all 4 users",
            "first after 1k",
            "against one",
            "of layers 0 to 79",
            "weights 1",
            "October 2026",
        ],
    );
    let pictures = pictures(&page);
    assert_eq!(pictures.len(), 3);
    assert_says(&texts(pictures[0])?, &["memory bandwidth", "tp2 on 2 x m3-ultra-512", "ms per token"]);
    assert_says(&texts(pictures[1])?, &["machines", "tokens/s, one user", "|1|", "|2|"]);
    assert_says(&texts(pictures[2])?, &["operations per byte read", "m3-ultra-512", "|A|", "|B|", "|P"]);
    Ok(())
}

#[test]
fn every_goal_and_size_of_cluster_has_a_page() -> Outcome {
    let one = Question::new("llama-3.3-70b", &["m4-max-128"])?;
    let many = Question::new("llama-3.3-70b", &["m4-pro-64"; 9])?;
    for goal in [Goal::Decode, Goal::FirstToken, Goal::Throughput, Goal::Power, Goal::Machines] {
        assert_sound(&one.page(goal)?);
    }
    assert_sound(&many.page(Goal::Decode)?);
    Ok(())
}

#[test]
fn too_few_machines_for_the_model_are_marked() -> Outcome {
    let question = Question::new("deepseek-v3.1", &["m3-ultra-256"; 4])?;
    let page = question.page(Goal::Decode)?;
    assert_sound(&page);
    assert_says(&texts(pictures(&page)[1])?, &["none"]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_told_with_what_would_help() -> Outcome {
    let question = Question::new("deepseek-v3.1", &["m4-max-128", "m4-max-128"])?;
    let page = question.page(Goal::Decode)?;
    assert_sound(&page);
    assert_says(
        &page,
        &["It does not fit", "m4-max-128 #2", "lacks", "It fits with one of", "more m4-max-128"],
    );
    assert!(pictures(&page).is_empty());
    Ok(())
}

#[test]
fn a_rate_that_is_not_known_leaves_a_line_without_a_level_part() -> Outcome {
    let mut question = Question::new("llama-3.3-70b", &["m3-ultra-512"])?;
    let machine = Machine { rate: 0.0, ..question.cluster.nodes()[0].machine.clone() };
    question.cluster = Cluster::alone(machine);
    let page = question.page(Goal::Decode)?;
    assert_sound(&page);
    let roofline = texts(pictures(&page)[2])?;
    assert_says(&roofline, &["|A"]);
    assert!(!roofline.contains("|P"), "{roofline}");
    Ok(())
}

#[test]
fn a_budget_has_a_table_and_bars() -> Outcome {
    let question = Question::new("llama-3.3-70b", &[])?;
    let found =
        budget::offers(&Catalogue::built_in(), &question.model, &question.format, &WORKLOAD, 10_000.0, None);
    let page = offers(&question.heading(), 10_000.0, &found)?;
    assert_sound(&page);
    assert_says(&page, &["llama-3.3-70b for $10,000", "list price", "Mac Studio", "does not fit"]);
    let pictures = pictures(&page);
    assert_eq!(pictures.len(), 2);
    assert_says(&texts(pictures[0])?, &["tokens/s", "x rtx-5090"]);
    assert_says(&texts(pictures[1])?, &["dollars", "unknown", "$"]);
    Ok(())
}

#[test]
fn a_budget_that_buys_nothing_has_a_page() -> Outcome {
    let question = Question::new("llama-3.3-70b", &[])?;
    let page = offers(&question.heading(), f64::NAN, &[])?;
    assert_sound(&page);
    assert!(pictures(&page).is_empty());
    Ok(())
}

#[test]
fn foreign_names_stay_text() -> Outcome {
    let mut question = Question::new("llama-3.3-70b", &["m3-ultra-512", "m3-ultra-512"])?;
    question.model.id = HOSTILE.into();
    let nodes = question.cluster.nodes().iter().cloned().map(|mut node| {
        node.name = HOSTILE.into();
        node.machine.id = HOSTILE.into();
        node
    });
    question.cluster = Cluster::uniform(nodes.collect(), Some(Link::named("tb5-rdma")?));
    let page = question.page(Goal::Decode)?;
    assert_sound(&page);
    assert!(!page.contains('\u{1}'));
    assert_says(&page, &["&lt;script&gt;"]);

    let names = [HOSTILE.to_owned()];
    let svg = timeline(HOSTILE, &names, &[], 1.0)?;
    assert_sound(&svg);
    assert_says(&texts(&svg)?, &["<script>"]);
    Ok(())
}

#[test]
fn odd_figures_are_never_shown() -> Outcome {
    let question = Question::new("llama-3.3-70b", &["m3-ultra-512"])?;
    let mut answer = question.answer(Goal::Decode);
    for plan in &mut answer.plans {
        plan.power = Some(f64::INFINITY);
        plan.decode.high = f64::NAN;
        plan.against_one = Some(f64::INFINITY);
        plan.causes[0].part = f64::NAN;
        plan.memory[0].usable = 0.0;
        plan.placement.stages[0].ranks[0].share = f64::NAN;
    }
    let heading = Heading { weights: f64::NAN, ..question.heading() };
    assert_sound(&plans(&heading, &question.setting(), &WORKLOAD, Goal::Decode, &answer)?);
    Ok(())
}

#[test]
fn a_timeline_has_a_lane_per_machine_and_shades_for_items() -> Outcome {
    let machines = ["first".to_owned(), "second".to_owned()];
    let bar = |lane, kind, item, start, end| Bar { lane, kind, item, start, end };
    let bars = [
        bar(0, BarKind::Compute, 0, 0.0, 0.010),
        bar(0, BarKind::Compute, 1, 0.010, 0.020),
        bar(0, BarKind::Hop, 0, 0.010, 0.012),
        bar(1, BarKind::Collective, 0, 0.012, 0.020),
    ];
    let svg = timeline("A prompt", &machines, &bars, 0.020)?;
    assert_sound(&svg);
    assert_says(&texts(&svg)?, &["A prompt", "first", "second", "works on its layers", "|ms"]);
    let document = roxmltree::Document::parse(&svg)?;
    let shades = |opacity| {
        document
            .descendants()
            .filter(|node| node.attribute("opacity") == Some(opacity) && node.has_tag_name((SVG, "rect")))
            .count()
    };
    assert_eq!(shades("0.55"), 1);
    Ok(())
}

const SVG: &str = "http://www.w3.org/2000/svg";

#[test]
fn bars_that_do_not_fit_a_timeline_are_refused() {
    let bar = Bar { lane: 0, kind: BarKind::Hop, item: 0, start: 0.0, end: 1.0 };
    let machines = ["one".to_owned()];
    for wrong in [
        Bar { lane: 1, ..bar },
        Bar { start: 2.0, ..bar },
        Bar { start: -1.0, ..bar },
        Bar { end: 1.1, ..bar },
        Bar { end: f64::NAN, ..bar },
    ] {
        assert!(
            matches!(timeline("t", &machines, &[bar, wrong], 1.0), Err(ReportError::Bar(1))),
            "{wrong:?}"
        );
    }
    for end in [1e-300, 1e-9, 1e300] {
        assert!(timeline("t", &machines, &[], end).is_ok(), "{end}");
    }
    for end in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(timeline("t", &machines, &[], end), Err(ReportError::End(_))), "{end}");
    }
}
