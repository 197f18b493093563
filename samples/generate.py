"""A network that writes text on the simulator, character by character, next to onnxruntime.

    python samples/generate.py                     weights as drawn: any characters, the same ones as onnxruntime's
    python samples/generate.py --train 2000        trained first, by PyTorch, on the texts of Python's own help

The network is `qwen3-mini` of the zoo. Its file is the first pass over a prompt and each step after it; a session keeps
the caches of keys and values between runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import numpy_helper

import dsa_sched
from dsa_sched.zoo import zoo_model

Array = npt.NDArray[Any]

NETWORK, CHIP, LEVEL = "qwen3-mini", "stcp920", "O2"
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
"""One per word of the network."""
PROMPT = "The statement is"
HELD_BACK = 4096
"""Characters at the end of the text that no training sees."""
WINDOW, BATCH = 64, 32
"""Characters that training looks at together, and how many such pieces."""


def numbers(text: str) -> list[int]:
    return [CHARACTERS.index(each) for each in text if each in CHARACTERS]


def corpus() -> list[int]:
    return numbers("\n".join(topics[name] for name in sorted(topics)))


def trained(model: onnx.ModelProto, steps: int) -> onnx.ModelProto:
    """The model with weights that PyTorch found in so many steps."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the products are small
    arrays = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    weights = {
        name: torch.tensor(array, requires_grad=True) for name, array in arrays.items() if name.endswith(".weight")
    }
    tables = [torch.tensor(arrays[name])[:WINDOW] for name in sorted(arrays) if name.startswith(("cosines", "sines"))]
    depth = 2 * tables[0].shape[1]
    layers = sum(name.endswith("norm1.weight") for name in weights)

    def norm(x: Any, name: str) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weights[f"{name}.weight"]

    def turned(x: Any) -> Any:
        first, second = x[..., : depth // 2], x[..., depth // 2 :]
        cosines, sines = tables
        return torch.cat([first * cosines - second * sines, first * sines + second * cosines], -1)

    def attention(x: Any, name: str) -> Any:
        def part(kind: str) -> Any:
            heads = (x @ weights[f"{name}.{kind}.weight"]).unflatten(-1, (-1, depth))
            heads = heads if kind == "value" else norm(heads, f"{name}.{kind}.norm")
            return heads.transpose(1, 2) if kind == "value" else turned(heads.transpose(1, 2))

        seen = functional.scaled_dot_product_attention(
            part("query"), part("key"), part("value"), is_causal=True, enable_gqa=True
        )
        return seen.transpose(1, 2).flatten(2) @ weights[f"{name}.output.weight"]

    def scores(ids: Any) -> Any:
        x = weights["words.weight"][ids]
        for layer in range(layers):
            name = f"layer{layer}"
            x = x + attention(norm(x, f"{name}.norm1"), f"{name}.attention")
            y = norm(x, f"{name}.norm2")
            gate = functional.silu(y @ weights[f"{name}.mlp.gate.weight"])
            x = x + (gate * (y @ weights[f"{name}.mlp.up.weight"])) @ weights[f"{name}.mlp.down.weight"]
        return norm(x, "norm") @ weights["words.weight"].T

    text = torch.tensor(corpus()[:-HELD_BACK])
    optimiser = torch.optim.AdamW(weights.values(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - WINDOW, (BATCH,))
        pieces = torch.stack([text[start : start + WINDOW + 1] for start in starts])
        loss = functional.cross_entropy(scores(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} of {steps}: perplexity {math.exp(loss.item()):.2f}", flush=True)
    for item in model.graph.initializer:
        if item.name in weights:
            item.CopyFrom(numpy_helper.from_array(weights[item.name].detach().numpy(), item.name))
    return model


Run = Callable[[dict[str, Array]], Array]
"""Function of inputs that gives tokens or scores, and keeps the caches."""


def on_the_chip(model: onnx.ModelProto, rows: tuple[int, ...], output: str) -> Run:
    """Runs on the simulator, of as many rows as `ids` have; the programs for them share one set of caches."""
    sessions = {
        count: dsa_sched.compile(model, chip=CHIP, level=LEVEL, shape={"ids": (1, count)}).session() for count in rows
    }
    caches: dict[str, Array] = {}

    def run(feed: dict[str, Array]) -> Array:
        session = sessions[feed["ids"].shape[1]]
        session.state |= caches
        found = session.run(feed)[output]
        caches.update(session.state)
        return found

    return run


def on_the_host(model: onnx.ModelProto, output: str) -> Run:
    """The same by onnxruntime, in fp32."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    pasts = [item for item in session.get_inputs() if item.name.startswith("past.")]
    caches = {item.name: np.zeros((1, *item.shape[1:]), np.float32) for item in pasts}
    names = [output, *(name.replace("past.", "present.") for name in caches)]

    def run(feed: dict[str, Array]) -> Array:
        found, *presents = session.run(names, feed | caches)
        caches.update(zip(caches, presents, strict=True))
        return np.asarray(found)

    return run


def continued(run: Run, prompt: list[int], count: int) -> list[int]:
    """The tokens after a prompt, each the one with the largest score."""
    tokens, new, begin = list[int](), prompt, 0
    for _ in range(count):
        found = run({"ids": np.array([new]), "begin": np.array([begin])})
        begin += len(new)
        new = [int(found[0, -1])]
        tokens += new
    return tokens


def perplexity(run: Run, text: list[int], rows: int) -> float:
    """Of text that is read in pieces of so many characters, each by itself."""
    losses = []
    for start in range(0, len(text) - rows, rows):
        piece = np.array(text[start : start + rows + 1])
        scores = run({"ids": piece[None, :-1], "begin": np.array([0])})[0].astype(np.float64)
        scores -= scores.max(-1, keepdims=True)
        losses.append(np.log(np.exp(scores).sum(-1)) - scores[np.arange(rows), piece[1:]])
    return math.exp(float(np.mean(losses)))


def with_scores(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that gives the scores of all characters in place of the token."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    shape = ("batch", "sequence", len(CHARACTERS))
    copy.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, shape))
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train first; needs PyTorch")
    parser.add_argument("--tokens", type=int, default=24, help="how many characters are written, at most 80")
    parser.add_argument("--held", type=int, default=0, help="held characters whose perplexity is told, at most 4,096")
    options = parser.parse_args()
    model = zoo_model(NETWORK)
    if options.train:
        model = trained(model, options.train)
    prompt = numbers(PROMPT)
    ours = continued(on_the_chip(model, (len(prompt), 1), "token"), prompt, options.tokens)
    theirs = continued(on_the_host(model, "token"), prompt, options.tokens)
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    print(PROMPT + "".join(CHARACTERS[number] for number in ours))
    print(f"tokens that are onnxruntime's: {same} of {options.tokens}")
    if options.held:
        text, rows = corpus()[-HELD_BACK:][: options.held], 32
        scoring = with_scores(model)
        found = perplexity(on_the_chip(scoring, (rows,), "scores"), text, rows)
        exact = perplexity(on_the_host(scoring, "scores"), text, rows)
        print(f"perplexity of held text: {found:.4f}, in fp32 {exact:.4f}")


if __name__ == "__main__":
    main()
