"""Exports of five architectures with caches: a prefill, then token by token. The tokens are onnxruntime's wherever
rounding to fp16 does not decide between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

import dsa_sched

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
CACHE = (1, 2, 96, 16)
STEPS = 32
LARGEST_ERROR = 0.01
"""Of a logit, relative to the largest."""
MOST_STEPS = 0.9
"""Share of steps with the same token: drawn weights leave some with two that are alike."""
ARCHITECTURES = ("llama", "qwen3", "gemma3", "phi3", "gpt2")


def generated(prefill: Run, step: Run, prompt: list[int], count: int, heads: int, said: Sequence[int] = ()) -> Array:
    """Logits of the last row of each of `count` + 1 runs, [run, word]. The next token is the largest, or the one that
    is `said`."""
    caches = {f"past.{layer}.{kind}": np.zeros((1, heads, *CACHE[2:]), np.float32)
              for layer in range(2) for kind in ("key", "value")}  # fmt: skip
    new, at, logits = prompt, 0, list[Array]()
    for number in range(count + 1):
        feed = {"ids": np.array([new]), "position": np.arange(at, at + len(new)), **caches}
        found = (prefill if len(new) > 1 else step)(feed)
        at += len(new)
        caches = {
            name.replace("present", "past"): np.asarray(array) for name, array in found.items() if name != "logits"
        }
        logits.append(found["logits"][0, -1].astype(np.float64))
        new = [said[number] if said else int(logits[-1].argmax())]
    return np.array(logits)


def on_the_host(path: Path) -> Run:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True))


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [13, 48])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_loop_of_steps_gives_onnxruntimes_tokens(architecture: str, rows: int, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[exports]'")
    from tests.exports.decoders import WORDS, export

    files = [export(architecture, count, tmp_path) for count in (rows, 1)]
    prompt = [int(word) for word in np.random.default_rng(2).integers(0, WORDS, rows)]
    artifacts = [dsa_sched.compile(path, chip="stcp920", level="O2", cache=False) for path in files]
    heads = 4 if architecture == "gpt2" else 2
    exact = generated(on_the_host(files[0]), on_the_host(files[1]), prompt, STEPS, heads)
    ours = generated(artifacts[0].run, artifacts[1].run, prompt, STEPS, heads, [*map(int, exact.argmax(1))])
    errors = np.abs(ours - exact).max(1)
    first, second = np.sort(exact, 1)[:, -1], np.sort(exact, 1)[:, -2]
    assert errors.max() <= LARGEST_ERROR * np.abs(exact).max()
    assert all((ours.argmax(1) == exact.argmax(1)) | (first - second <= 2 * errors))
    assert np.mean(ours.argmax(1) == exact.argmax(1)) >= MOST_STEPS
