"""What the benchmarks share: the virtual environment, cargo, and a description of the machine."""

import json
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

BENCH = Path(__file__).resolve().parent
PROJECT = BENCH.parent
VENV = BENCH / ".venv"
PYTHON = VENV / "bin" / "python"

# Load average above which a figure says more about the neighbours than about the programs.
BUSY_LOAD = 0.5


def make_venv() -> None:
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)


def installed_version(package: str) -> str:
    """Empty when the virtual environment does not have it."""
    query = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([PYTHON, "-c", query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip()


def pip(*arguments: str, env: dict[str, str] | None = None) -> None:
    command = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, env=env, check=True)


def build(*arguments: str) -> Path:
    """Builds with cargo in release mode; gives the folder of the results."""
    subprocess.run(["cargo", "build", "--release", "--locked", *arguments], cwd=PROJECT, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=PROJECT,
                              stdout=subprocess.PIPE, check=True)
    return Path(json.loads(metadata.stdout)["target_directory"]) / "release"


def machine() -> dict:
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()}


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def load_with_warning() -> float:
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        say(f"load average is {load:.2f}: other work disturbs these figures")
    return load


def say(message: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)
