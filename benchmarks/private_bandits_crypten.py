"""The published private bandit by CrypTen 0.4.1's operators, for `private_bandits.py`; prints JSON.

python private_bandits_crypten.py WORLD.npz
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import types

stub = types.ModuleType("torch.onnx._internal.registration")
stub.registry = types.SimpleNamespace()
sys.modules["torch.onnx._internal.registration"] = stub

import crypten  # noqa: E402
import crypten.mpc  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

ARMS, FEATURES, EPSILON, STEPS = 10, 20, 0.01, 12


@crypten.mpc.run_multiprocess(world_size=2)
def run():
    torch.set_num_threads(1)
    data = np.load(sys.argv[1])
    contexts, rewards = (torch.from_numpy(data[name]).float() for name in ("contexts", "rewards"))
    inverse = crypten.cryptensor(torch.eye(FEATURES).repeat(ARMS, 1, 1))
    sums = crypten.cryptensor(torch.zeros(ARMS, FEATURES))
    weights = crypten.cryptensor(torch.zeros(ARMS, FEATURES))
    seconds, cpu = [], []
    for step in range(STEPS):
        start, start_cpu = time.perf_counter(), time.process_time()
        x = crypten.cryptensor(contexts[step], src=1)
        scores = weights.matmul(x)
        explore = crypten.bernoulli(torch.tensor([EPSILON]))
        scores = scores + explore * (crypten.rand(ARMS) - scores)
        arm = scores.argmax(dim=0, one_hot=True)
        pulled = (
            int(arm.get_plain_text(dst=0).argmax()) if crypten.comm.get().get_rank() == 0 else 0
        )
        if crypten.comm.get().get_rank() == 1:
            arm.get_plain_text(dst=0)
        reward = crypten.cryptensor(rewards[step, pulled], src=1)
        moved = inverse.matmul(x)  # [arms, features]
        norms = moved.matmul(x) + 1.0
        shift = moved.unsqueeze(2).matmul(moved.unsqueeze(1)) * norms.reciprocal().reshape(-1, 1, 1)
        inverse = inverse - shift * arm.reshape(-1, 1, 1)
        sums = sums + arm.reshape(-1, 1) * (x * reward)
        weights = inverse.matmul(sums.unsqueeze(2)).squeeze(2)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    medians = (statistics.median(each[1:]) for each in (seconds, cpu))
    return dict(zip(("seconds", "cpu_s"), medians, strict=True))


if __name__ == "__main__":
    print(json.dumps(run()[0]))
