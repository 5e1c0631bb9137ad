"""reduce.py BYTES REPEATS: all-reduce that many bytes of float32, and print the median seconds of one."""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def main(count: int, repeats: int) -> None:
    dist.init_process_group("gloo")
    values = torch.ones(count // 4)
    taken_s = []
    for _ in range(repeats):
        dist.barrier()  # so that no rank's late arrival is counted as communication
        began = time.perf_counter()
        dist.all_reduce(values)
        taken_s.append(time.perf_counter() - began)
        values.fill_(1.0)
    dist.destroy_process_group()
    print(json.dumps(statistics.median(taken_s)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
