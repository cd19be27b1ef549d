//! Fetches a model and says where it is: `cargo run -p pomar-store --example pull -- smollm2`.

use pomar_store::{Bar, ModelRef, Options, Store, StoreError, default_home};

fn main() -> Result<(), StoreError> {
    let store = Store::open(default_home()?);
    let bar = Bar::new();
    for argument in std::env::args().skip(1) {
        let model: ModelRef = argument.parse()?;
        let resolved = store.resolve(&model, &Options { progress: &bar, ..Options::default() })?;
        println!("{} from {}: {}", resolved.display_name, resolved.source, resolved.path.display());
    }
    Ok(())
}
