//! An unmodified MLX program, over its own ring and over Open MPI.

use crate::common::{Place, free_ports, lines};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAM: &str = r#"
import mlx.core as mx

group = mx.distributed.init()
total = mx.distributed.all_sum(mx.array([1.0, group.rank()]))
print(f"rank {group.rank()} of {group.size()}: {total.tolist()}")
"#;

/// A Python with MLX, made once under the target folder; other test processes wait meanwhile.
pub(crate) fn python() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launch-mlx");
    std::fs::create_dir_all(&home).unwrap();
    let lock = File::create(home.join("lock")).unwrap();
    lock.lock().unwrap();
    let python = home.join("venv/bin/python");
    if !home.join("ready").exists() {
        let run = |program: &Path, arguments: &[&str]| {
            let status = Command::new(program).args(arguments).status();
            let hint = "this test needs Python 3 with venv and pip (apt-get install python3-venv) and a package index";
            assert!(status.is_ok_and(|status| status.success()), "{program:?} {arguments:?} failed; {hint}");
        };
        run(Path::new("python3"), &["-m", "venv", home.join("venv").to_str().unwrap()]);
        let package = if cfg!(target_os = "macos") { "mlx==0.32.4" } else { "mlx[cpu]==0.32.4" };
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]);
        File::create(home.join("ready")).unwrap();
    }
    python
}

/// Starts the program and expects the sum of three ranks on each.
fn sums(options: &[&str]) {
    let (place, python) = (Place::new(), python());
    place.write("program.py", PROGRAM);
    let start = ["-n", "3", "--python", python.to_str().unwrap()];
    let lines = lines(&mut place.launch(&[&start[..], options, &["program.py"]].concat()));
    let expected: Vec<_> = (0..3).map(|rank| format!("[{rank}] rank {rank} of 3: [3.0, 3.0]")).collect();
    assert_eq!(lines, expected);
    place.assert_clean();
}

#[test]
fn over_its_ring_with_three_ranks() {
    sums(&["-p", &free_ports(3).to_string()]);
}

#[test]
fn over_open_mpi_with_three_ranks() {
    sums(&["--backend", "mpi", "--mpirun", crate::mpi::open_mpi().to_str().unwrap()]);
}
