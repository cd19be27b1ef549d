//! The built-in catalogue is complete, in the right units, and plausible.

use pomar_plan::{Catalogue, CatalogueError};

#[test]
fn figures_are_plausible() {
    let catalogue = Catalogue::built_in();
    let mut known = 0;
    for name in catalogue.machine_names() {
        let machine = match catalogue.machine(name) {
            Ok(machine) => machine,
            Err(CatalogueError::FactUnknown { .. }) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        known += 1;
        assert!((4e9..=1e12).contains(&machine.memory), "{name}: {} bytes", machine.memory);
        assert!(machine.usable > 0.6 * machine.memory && machine.usable < machine.memory, "{name}");
        assert!((5e10..=1e13).contains(&machine.bandwidth), "{name}: {} bytes/s", machine.bandwidth);
        assert!(machine.rate == 0.0 || (1e12..=1e15).contains(&machine.rate), "{name}: {}/s", machine.rate);
        assert!(machine.price.is_none_or(|price| (300.0..=60_000.0).contains(&price)), "{name}");
        let powers = machine.idle_power.zip(machine.full_power);
        assert!(powers.is_none_or(|(idle, full)| idle > 0.0 && idle < full && full <= 1500.0), "{name}");
    }
    assert!(known >= 70, "{known}");
}

#[test]
fn models_have_the_parameters_that_their_publishers_say() {
    let catalogue = Catalogue::built_in();
    let mut known = 0;
    for name in catalogue.model_names() {
        let Ok(model) = catalogue.model(name) else { continue };
        known += 1;
        let shape = catalogue.shape(name).unwrap();
        let published = shape.params_total_b.unwrap() * 1e9;
        // Names round, and some count vision parts and drafts of further tokens.
        assert!((model.parameters() / published - 1.0).abs() < 0.1, "{name}: {}", model.parameters());
        if let Some(computed) =
            shape.params_total_b.and(shape.params_active_b).filter(|_| shape.experts.is_some())
        {
            let active = model.active_parameters() / (computed * 1e9);
            assert!((0.75..1.25).contains(&active), "{name}: {active}");
        }
        assert!(model.cache(1024.0) > 0.0, "{name}");
    }
    assert!(known >= 55, "{known}");
}

#[test]
fn machines_have_several_names() {
    let catalogue = Catalogue::built_in();
    let memory = |name: &str| catalogue.machine(name).unwrap().memory / 1e9;
    assert_eq!(memory("m3-ultra-512"), 512.0);
    assert_eq!(memory("m3-ultra-80c"), 512.0);
    assert_eq!(memory("m3-ultra-80c-256"), 256.0);
    assert_eq!(memory("mac-studio-m3-ultra-96"), 96.0);
    assert_eq!(memory("rtx-5090"), 32.0);
    assert_eq!(catalogue.machine("m3-ultra-512").unwrap().price, Some(9499.0));
    assert!(catalogue.machine("m3-ultra-77").unwrap_err().to_string().contains("no machine is called"));
    assert!(catalogue.machine("m3-ultra-123").unwrap_err().to_string().contains("did you mean"));
}

#[test]
fn a_users_entries_go_first() {
    let mut catalogue = Catalogue::built_in();
    let before = catalogue.model("qwen3-4b").unwrap().layers.len();
    catalogue
        .extend(
            r#"
            [[model]]
            id = "qwen3-4b"
            layers = 2
            hidden_size = 64
            heads = 2
            kv_heads = 1
            head_dim = 32
            intermediate_size = 128
            vocab_size = 100

            [[chip]]
            id = "n1-9c"
            vendor = "other"
            name = "N1"
            memory_bandwidth_gbs = 100
            memory_options_gb = [48]
            "#,
        )
        .unwrap();
    assert_eq!((before, catalogue.model("qwen3-4b").unwrap().layers.len()), (36, 2));
    assert_eq!(catalogue.machine("n1-9c").unwrap().bandwidth, 1e11);
    let names = catalogue.machine_names().count();
    assert!(catalogue.extend("[[chip]]\nid = 3").is_err());
    let nothing = "[[accelerator]]\nid = \"x\"\nname = \"X\"\nvendor = \"other\"\nmemory_gb = ";
    for wrong in ["0", "-1", "nan", "inf"] {
        assert!(catalogue.extend(&format!("{nothing}{wrong}")).unwrap_err().to_string().contains("above 0"));
    }
    catalogue.extend("[[model]]\nid = \"deep\"\nlayers = 4000000000").unwrap();
    assert!(catalogue.model("deep").unwrap_err().to_string().contains("layers"));
    assert!(catalogue.extend("[[cow]]\nid = \"x\"").unwrap_err().to_string().contains("cow"));
    assert_eq!(catalogue.machine_names().count(), names);
}
