"""One rank of MLX's ring: the calls of mlx_ring.rs, in its order, with a digest of every result.

    MLX_HOSTFILE=hosts.json MLX_RANK=1 mlx_side.py run     all cases; prints one line for each
    MLX_HOSTFILE=hosts.json MLX_RANK=1 mlx_side.py wait    takes part in sums until the ring ends
"""

import hashlib
import sys

import mlx.core as mx

DTYPES = {"f32": mx.float32, "bf16": mx.bfloat16, "i32": mx.int32}


def main() -> None:
    mx.set_default_device(mx.cpu)
    group = mx.distributed.init(strict=True, backend="ring")
    if sys.argv[1] == "wait":
        print("JOINED", flush=True)
        while True:
            mx.eval(mx.distributed.all_sum(mx.ones((1024,)), group=group))
    for length in lengths(group.size()):
        run(group, length)


def lengths(ranks: int) -> list[int]:
    """Elements: fewer than ranks, few, awkward, and around the sizes where f32 gets a second and a third lane."""
    lane = ranks * 65536
    return [1, ranks, ranks + 1, 1000, 4099, lane - 1, 2 * lane - 1, 2 * lane + 5, 3 * lane + 1]


def run(group: mx.distributed.Group, length: int) -> None:
    rank, ranks = group.rank(), group.size()
    for name in DTYPES:
        report("all_sum", name, length, mx.distributed.all_sum(sample(rank, name, length), group=group))
        report("all_max", name, length, mx.distributed.all_max(sample(rank, name, length), group=group))
    mine = sample(rank, "f32", length)
    report("all_gather", "f32", length, mx.distributed.all_gather(mine, group=group))
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    for to, source in ((right, left), (left, right)):
        report("recv", f"from {source}", length, exchange(group, mine, to, source))


def exchange(group: mx.distributed.Group, mine: mx.array, to: int, source: int) -> mx.array:
    """All send one way; rank 0 receives first, so that not everybody waits for a reader."""
    send = lambda: mx.eval(mx.distributed.send(mine, to, group=group))
    receive = lambda: mx.distributed.recv_like(mine, source, group=group)
    if group.rank() == 0:
        received = receive()
        mx.eval(received)
        send()
    else:
        send()
        received = receive()
        mx.eval(received)
    return received


def sample(rank: int, name: str, length: int) -> mx.array:
    """Numbers that mlx_ring.rs makes in the same way."""
    index = mx.arange(length, dtype=mx.uint32)
    mixed = index * mx.array(2654435761, mx.uint32) + mx.array((rank + 1) * 40503, mx.uint32)
    mixed = mixed ^ (mixed >> 15)
    if name == "i32":
        return mixed.view(mx.int32)
    small = (mixed & 0xFFFF).astype(mx.float32)
    return ((small - 32768.0) / 77.0).astype(DTYPES[name])


def report(call: str, what: str, length: int, result: mx.array) -> None:
    digest = hashlib.sha256(memoryview(result.view(mx.uint8))).hexdigest()
    print(f"{call} {what} {length}: {digest}", flush=True)


if __name__ == "__main__":
    main()
