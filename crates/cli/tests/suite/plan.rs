//! `pomar plan` as a person uses it.

use crate::common::{failure, fixture, output, pomar};
use serde_json::Value;
use std::fs;

fn json(arguments: &[&str]) -> Value {
    let mut command = pomar(&["plan"]);
    command.args(arguments).arg("--json");
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

#[test]
fn plans_are_ranked_and_explained() {
    let printed = output(&mut pomar(&["plan", "kimi-k2-thinking", "--on", "4x", "m3-ultra-512"]));
    for part in ["4 x m3-ultra-512", "tb5-rdma", "tp4", "tp2 x pp2", "memory bandwidth of", "of"] {
        assert!(printed.contains(part), "no '{part}' in:\n{printed}");
    }
    let answer = json(&["kimi-k2-thinking", "--on", "4xm3-ultra-512"]);
    let plans = answer["plans"].as_array().unwrap();
    assert!(plans.len() == 5 && plans[0]["split"] == "tp4", "{answer}");
    let speed = |plan: &Value| plan["decode"]["likely"].as_f64().unwrap();
    assert!(plans.windows(2).all(|pair| speed(&pair[0]) >= speed(&pair[1])), "{answer}");
    for plan in plans {
        let parts = plan["causes"].as_array().unwrap().iter().map(|cause| cause["part"].as_f64().unwrap());
        assert!((0.97..=1.001).contains(&parts.sum::<f64>()), "{plan}");
        for node in plan["memory"].as_array().unwrap() {
            let bytes = |what: &str| node[what].as_f64().unwrap();
            assert!(bytes("weights") + bytes("cache") + bytes("base") <= bytes("usable"), "{node}");
        }
    }
}

#[test]
fn one_machine_is_always_shown_and_never_beaten_by_a_slower_plan() {
    let slow = ["qwen3-30b-a3b", "--on", "m3-ultra-512,m4-pro-64", "--link", "1gbe-tcp", "--most", "2"];
    let answer = json(&slow);
    assert_eq!((&answer["plans"][0]["split"], answer["plans"].as_array().unwrap().len()), (&"1".into(), 2));
    assert_eq!(answer["plans"][0]["machines"][0], "m3-ultra-512");
    // Where others are faster, the best machine alone is there for comparison.
    let fast = json(&["llama-3.1-405b", "--on", "4x", "m3-ultra-512", "--most", "2"]);
    let splits: Vec<_> = fast["plans"].as_array().unwrap().iter().map(|plan| &plan["split"]).collect();
    assert_eq!(splits, ["tp4", "1"]);
}

#[test]
fn what_does_not_fit_is_told_with_what_would() {
    let mut command = pomar(&["plan", "deepseek-v3.1", "--bits", "8", "--on", "2x", "m3-ultra-256"]);
    let printed = command.output().unwrap();
    assert!(!printed.status.success());
    let printed = String::from_utf8(printed.stdout).unwrap();
    for part in ["does not fit", "713", "m3-ultra-256 #2 lacks", "--bits 4", "2 more m3-ultra-256"] {
        assert!(printed.contains(part), "no '{part}' in:\n{printed}");
    }
    let raised = ["glm-5", "--bits", "4", "--on", "m3-ultra-512"];
    assert!(json(&raised)["shortage"]["fits_with"][0].as_str().unwrap().contains("--raise-limit"));
    assert_eq!(json(&[&raised[..], &["--raise-limit"]].concat())["plans"][0]["split"], "1");
}

#[test]
fn a_budget_compares_macs_cards_and_boxes() {
    let answer = json(&["deepseek-v3.1", "--budget", "50000"]);
    let offers = answer["offers"].as_array().unwrap();
    let offer = |machine: &str| offers.iter().find(|offer| offer["machine"] == machine).unwrap();
    let macs = offer("mac-studio-m3-ultra-512");
    assert_eq!(
        (&macs["count"], &macs["price"], &macs["memory"]),
        (&5.into(), &47_495.0.into(), &2.56e12.into())
    );
    assert!(macs["plan"]["decode"]["likely"].as_f64().unwrap() > 10.0);
    let cards = offer("rtx-pro-6000-blackwell");
    assert_eq!((&cards["count"], &cards["memory"], &cards["plan"]), (&4.into(), &384e9.into(), &Value::Null));
    let unknown = offer("gh200");
    assert!(unknown["price"].is_null() && unknown["memory"].as_f64().unwrap() >= 2.5e12, "{unknown}");
    let printed = output(&mut pomar(&["plan", "deepseek-v3.1", "--budget", "50000"]));
    assert!(
        printed.contains("unknown") && printed.contains("October 2026") && printed.contains("$47,495"),
        "{printed}"
    );
}

#[test]
fn models_and_machines_of_a_user() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    let chip = "[[chip]]\nid = \"n1-9c\"\nvendor = \"other\"\nname = \"N1\"\n\
                memory_bandwidth_gbs = 100\nmemory_options_gb = [48]\n";
    fs::write(&mine, chip).unwrap();
    let config = folder.path().join("config.json");
    fs::copy(fixture("models/qwen3/config.json"), &config).unwrap();
    let model = folder.path().to_str().unwrap();
    let answer = json(&[model, "--on", "n1-48", "--catalogue", mine.to_str().unwrap()]);
    assert_eq!(answer["question"]["machines"][0], "n1-48");
    fs::write(&mine, "[[chip]]\nid = 5\n").unwrap();
    let wrong = ["plan", "qwen3-4b", "--on", "m4", "--catalogue", mine.to_str().unwrap()];
    assert!(failure(&mut pomar(&wrong)).contains("mine.toml"));
    fs::write(&config, "{").unwrap();
    assert!(failure(&mut pomar(&["plan", model, "--on", "m4"])).contains("config.json"));
}

#[test]
fn mistakes_are_told() {
    let mistakes: [(&[&str], &str); 9] = [
        (&["deepseek", "--on", "m4"], "did you mean deepseek-"),
        (&["qwen3-4b", "--on", "m3-ultra-511"], "did you mean"),
        (&["qwen3-4b", "--on", "m4", "--timeline", "/nowhere/t.svg"], "/nowhere"),
        (&["qwen3-4b", "--on", "65x", "m4"], "at most 64"),
        (&["qwen3-4b", "--on", "m4", "--link", "rope"], "tb5-rdma"),
        (&["qwen3-4b", "--on", "m4", "--backend", "abacus"], "llama.cpp"),
        (&["qwen3-4b", "--on", "m4", "--bits", "99"], "from 2 to 32"),
        (&["qwen3-4b", "--on", "m4", "--context", "many"], "32k"),
        (&["mistral-large-3-675b", "--on", "m4"], "hidden_size"),
    ];
    for (arguments, part) in mistakes {
        let mut command = pomar(&["plan"]);
        let said = failure(command.args(arguments));
        assert!(said.contains(part), "{arguments:?}: no '{part}' in {said}");
    }
    let listed = output(&mut pomar(&["plan", "--list"]));
    assert!(
        listed.contains("m3-ultra-80c") && listed.contains("kimi-k2-thinking") && listed.contains("tb5-rdma")
    );
}

#[test]
fn a_page_and_a_timeline_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (page, picture, offers) = (path("plan.html"), path("timeline.svg"), path("offers.html"));
    let on = ["qwen3-30b-a3b", "--on", "2x", "m3-ultra-512", "--goal", "first-token"];
    json(&[&on[..], &["--html", &page, "--timeline", &picture]].concat());
    let page = fs::read_to_string(page).unwrap();
    for part in ["<html", "qwen3-30b-a3b", "tp2", "Memory", "<svg"] {
        assert!(page.contains(part), "no '{part}' in the page");
    }
    let picture = fs::read_to_string(picture).unwrap();
    for part in ["<svg", "m3-ultra-512 #2", "8192 tokens"] {
        assert!(picture.contains(part), "no '{part}' in the picture");
    }
    json(&["qwen3-30b-a3b", "--budget", "10000", "--html", &offers]);
    assert!(fs::read_to_string(offers).unwrap().contains("list price"));
    let nowhere = ["plan", "qwen3-30b-a3b", "--on", "m3-ultra-512", "--html", "/nowhere/plan.html"];
    assert!(failure(&mut pomar(&nowhere)).contains("/nowhere/plan.html"));
}

#[test]
fn machines_have_no_more_cables_than_ports() {
    let speed = |count: &str| {
        let command = ["llama-3.3-70b", "--on", count, "mac-studio-m5-max-128"];
        let answer = json(&command);
        let stages = answer["plans"][0]["placement"]["stages"].as_array().unwrap();
        assert!(
            stages.iter().all(|stage| stage["ranks"].as_array().unwrap().len() <= 5),
            "four ports: {answer}"
        );
        let said = String::from_utf8(pomar(&["plan"]).args(command).output().unwrap().stderr).unwrap();
        (answer["plans"][0]["decode"]["likely"].as_f64().unwrap(), said)
    };
    let (five, nothing) = speed("5x");
    let (six, said) = speed("6x");
    assert_eq!((five, nothing.as_str()), (six, ""), "one more machine must not make it slower");
    assert!(said.contains("planning for 5 of them"), "{said}");
    // What five can't hold goes on a ring.
    let large = ["kimi-k2-thinking", "--bits", "8", "--on", "12x", "mac-studio-m5-max-128"];
    let said = pomar(&["plan"]).args(large).output().unwrap().stderr;
    assert!(String::from_utf8(said).unwrap().contains("planning for a ring"));
}

#[test]
fn what_is_not_known_is_not_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml").display().to_string();
    fs::write(&path, "[[accelerator]]\nid = \"mine\"\nname = \"Mine\"\nvendor = \"nvidia\"\nmemory_gb = 96\nmemory_bandwidth_gbs = 1800\n").unwrap();
    let mine = ["llama-3.1-8b", "--on", "mine", "--catalogue", &path];
    let answer = json(&mine);
    let plan = &answer["plans"][0];
    assert!(plan["decode"]["likely"].as_f64().unwrap() > 0.0 && plan["prefill"].is_null(), "{plan}");
    assert!(output(pomar(&["plan"]).args(mine)).contains("unknown"));
    // NVIDIA publishes 989 teraflops for it.
    let gh200 = json(&["llama-3.1-8b", "--on", "gh200"])["plans"][0]["prefill"]["likely"].as_f64().unwrap();
    assert!(gh200 * 16e9 < 989e12, "{gh200}");
}

#[test]
fn offers_are_what_the_sum_buys() {
    assert!(failure(&mut pomar(&["plan", "qwen3-4b", "--budget", "1"])).contains("costs less than $1"));
    let answer = json(&["llama-3.1-8b", "--budget", "50000"]);
    let offers = answer["offers"].as_array().unwrap();
    let known = offers.iter().take_while(|offer| !offer["price"].is_null()).count();
    assert!(offers[known..].iter().all(|offer| offer["price"].is_null()), "unknown prices come last");
    for offer in &offers[..known] {
        let price = |what: &str| offer[what].as_f64();
        assert!(price("price") <= Some(50_000.0) && price("plan_price") <= price("price"), "{offer}");
    }
    let two = json(&["llama-3.1-8b", "--budget", "50000", "--most", "2"]);
    assert_eq!(two["offers"].as_array().unwrap().len(), 2);
}

#[test]
fn prompts_can_be_on_other_machines_than_tokens() {
    let one_order =
        ["llama-3.1-8b", "--format", "f16", "--link", "10gbe-tcp", "--on", "dgx-spark,m3-ultra-256"];
    let other_order = [&one_order[..6], &["m3-ultra-256,dgx-spark"]].concat();
    let printed = output(pomar(&["plan"]).args(one_order));
    assert!(
        printed.contains("prompts on dgx-spark (1, llama.cpp-cuda), tokens on m3-ultra-256 (1, mlx)"),
        "{printed}"
    );
    let time = |arguments: &[&str]| {
        let answer = json(arguments);
        assert_eq!(answer["question"]["backend"], "llama.cpp");
        answer["disaggregated"]["first_token"].as_f64().unwrap()
    };
    assert_eq!(time(&one_order), time(&other_order));
}
