"""What SPU 0.9.5 runs for `private_mpc.py`, in its own environment; prints JSON.

Protocol SEMI2K (semi-honest, 2 parties, triples by a trusted first party, as CrypTen's default), 64-bit
ring. The parties are threads with a link in memory, as in SPU's own simulator: no network, no encryption.
"""

from __future__ import annotations

import json
import statistics
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import spu
import spu.utils.frontend as frontend
from spu import libspu

import private_mpc_inputs as inputs

REPEATS = 3


def lenet(image, w):
    def conv(x, kernel, bias):
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return y + bias.reshape(1, -1, 1, 1)

    def pool(x):
        n, c, h, v = x.shape
        return x.reshape(n, c, h // 2, 2, v // 2, 2).max((3, 5))

    y = pool(jax.nn.relu(conv(image, w["0.weight"], w["0.bias"])))
    y = pool(jax.nn.relu(conv(y, w["3.weight"], w["3.bias"]))).reshape(1, 800)
    y = jax.nn.relu(y @ w["7.weight"].T + w["7.bias"])
    return y @ w["9.weight"].T + w["9.bias"]


def norm(x, weight, bias):
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def transformer(x, layers):
    heads = inputs.BLOCK["heads"]
    for w in layers:
        n, length, width = x.shape
        qkv = x @ w["self_attn.in_proj_weight"].T + w["self_attn.in_proj_bias"]
        q, k, v = (
            part.reshape(n, length, heads, width // heads).transpose(0, 2, 1, 3)
            for part in jnp.split(qkv, 3, axis=-1)
        )
        scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
        y = (jax.nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3).reshape(n, length, width)
        y = y @ w["self_attn.out_proj.weight"].T + w["self_attn.out_proj.bias"]
        x = norm(x + y, w["norm1.weight"], w["norm1.bias"])
        hidden = jax.nn.gelu(x @ w["linear1.weight"].T + w["linear1.bias"], approximate=True)
        y = hidden @ w["linear2.weight"].T + w["linear2.bias"]
        x = norm(x + y, w["norm2.weight"], w["norm2.bias"])
    return x


def cases():
    rows, width, outputs = inputs.LINEAR
    w = inputs.lenet()
    layers = [inputs.block(number) for number in range(inputs.BLOCK["layers"])]
    text = inputs.draw(7, 1, inputs.BLOCK["sequence"], inputs.BLOCK["width"])
    return {
        "comparison": (
            lambda a, b: a > b,
            (inputs.draw(1, inputs.ELEMENTS), inputs.draw(2, inputs.ELEMENTS)),
        ),
        "softmax": (
            lambda x: jax.nn.softmax(x, axis=-1),
            (inputs.draw(3, *inputs.SOFTMAX, scale=3.0),),
        ),
        "linear": (
            lambda x, weight: x @ weight.T,
            (inputs.draw(4, rows, width), inputs.draw(5, outputs, width, scale=0.03)),
        ),
        "lenet": (lenet, (inputs.draw(6, 1, 1, 28, 28), w)),
        "transformer": (transformer, (text, layers)),
    }


def party(rank, description, config, executables, shares, measured):
    link = libspu.link.create_mem(description, rank)
    runtime = spu.Runtime(link, config)
    for name, executable in executables.items():
        for place, given in zip(executable.input_names, shares[name][rank], strict=True):
            runtime.set_var(place, given)
        seconds = []
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            runtime.run(executable)
            seconds.append(time.perf_counter() - start)
        outputs = [runtime.get_var(place) for place in executable.output_names]
        measured[rank][name] = (statistics.median(seconds[1:]), outputs)


def main():
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.SEMI2K, field=libspu.FieldType.FM64)
    io = spu.Io(2, config)
    executables, shares, expected = {}, {}, {}
    for name, (function, arguments) in cases().items():
        flat, _ = jax.tree_util.tree_flatten(arguments)
        names = [f"in{number}" for number in range(len(flat))]
        executables[name], _ = frontend.compile(
            frontend.Kind.JAX, function, arguments, {}, names,
            [libspu.Visibility.VIS_SECRET] * len(flat),
            lambda outputs: [f"out{number}" for number in range(len(outputs))],
        )  # fmt: skip
        made = [io.make_shares(np.array(each), libspu.Visibility.VIS_SECRET) for each in flat]
        shares[name] = list(zip(*made, strict=True))
        expected[name] = np.asarray(function(*jax.tree_util.tree_map(jnp.asarray, arguments)))
    description = libspu.link.Desc()
    for rank in range(2):
        description.add_party(f"party{rank}", f"thread{rank}")
    results: list[dict] = [{}, {}]
    parties = [
        threading.Thread(
            target=party, args=(rank, description, config, executables, shares, results)
        )
        for rank in range(2)
    ]
    for each in parties:
        each.start()
    for each in parties:
        each.join()
    measured = {}
    for name in executables:
        output = io.reconstruct([results[rank][name][1][0] for rank in range(2)])
        error = np.abs(output.astype(np.float64) - expected[name].astype(np.float64)).max()
        measured[name] = {
            "seconds": max(results[rank][name][0] for rank in range(2)),
            "error": float(error),
        }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
