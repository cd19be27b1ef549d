"""One MLX rank of bench/collectives: times its calls and, as rank 0, prints one line of JSON per figure.

    MLX_HOSTFILE=hosts.json MLX_RANK=0 mlx_side.py ring SIZES      (and as many more ranks)
    mpirun -n 2 mlx_side.py mpi SIZES
"""

import json
import sys
import time

import mlx.core as mx

# The same as in crates/cli/src/commands/bench/figures.rs.
PER_FIGURE_S = 0.25
FEWEST_ROUNDS = 20
MOST_ROUNDS = 10_000


def main() -> None:
    backend, sizes = sys.argv[1], [int(word) for word in sys.argv[2].split(",")]
    mx.set_default_device(mx.cpu)
    group = mx.distributed.init(strict=True, backend=backend)
    if group.size() < 2:
        sys.exit(f"mlx_side: the {backend} group has one rank; did the launcher start them?")
    for name, call in (("all_sum", all_sum), ("all_gather", all_gather), ("send_recv", there_and_back)):
        for size in sizes:
            data = mx.zeros((size // 4,), dtype=mx.float32)
            mx.eval(data)
            times = measure(group, lambda: call(group, data))
            if group.rank() == 0:
                print(json.dumps(figure(name, size, times)), flush=True)


def all_sum(group: mx.distributed.Group, data: mx.array) -> None:
    mx.eval(mx.distributed.all_sum(data, group=group))


def all_gather(group: mx.distributed.Group, data: mx.array) -> None:
    mx.eval(mx.distributed.all_gather(data, group=group))


def there_and_back(group: mx.distributed.Group, data: mx.array) -> None:
    """From rank 0 to rank 1 and back, of which half is the figure; the others have nothing to do."""
    send = lambda to: mx.eval(mx.distributed.send(data, to, group=group))
    receive = lambda source: mx.eval(mx.distributed.recv_like(data, source, group=group))
    if group.rank() == 0:
        send(1)
        receive(1)
    elif group.rank() == 1:
        receive(0)
        send(0)


def measure(group: mx.distributed.Group, call) -> list[float]:
    times = []
    for _ in range(agree_on_rounds(group, call)):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return sorted(times)


def agree_on_rounds(group: mx.distributed.Group, call) -> int:
    """Warms up, and lets rank 0 decide how many rounds fit into the time."""
    started = time.perf_counter()
    for _ in range(FEWEST_ROUNDS):
        call()
    each = (time.perf_counter() - started) / FEWEST_ROUNDS
    rounds = min(max(int(PER_FIGURE_S / each), FEWEST_ROUNDS), MOST_ROUNDS)
    mine = mx.array(rounds if group.rank() == 0 else 0)
    return mx.distributed.all_sum(mine, group=group).item()


def figure(call: str, size: int, times: list[float]) -> dict:
    parts = 2 if call == "send_recv" else 1
    at = lambda share: times[len(times) * share // 100] * 1e6 / parts
    return {"call": call, "bytes": size, "rounds": len(times), "min_us": at(0), "median_us": at(50), "p99_us": at(99)}


if __name__ == "__main__":
    main()
