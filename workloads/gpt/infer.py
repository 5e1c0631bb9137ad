"""Continue prompts: `infer.py --out O --prompts FILE [--tokens 8]`, where O is the --out of train.py.

FILE holds one JSON list of token numbers per line. For each, one JSON line is printed: the likeliest continuation, token by token, and
the probability the model gave to each of its tokens. Exit code 2 with one sentence where a prompt or the model cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from workloads.gpt.model import GPT
from workloads.gpt.stored import StoredError, read_model
from workloads.group import GroupFailure


class PromptError(ValueError):
    """A prompt that is no list of known tokens; the message names line, value and fix."""


def main() -> int:
    """Infer; returns the exit code."""
    parser = argparse.ArgumentParser(description="The likeliest continuation of each prompt.")
    parser.add_argument("--out", type=Path, required=True, help="the --out of a finished train.py")
    parser.add_argument("--prompts", type=Path, required=True, help="one JSON list of token numbers per line")
    parser.add_argument("--tokens", type=int, default=8, help="tokens to add")
    options = parser.parse_args()
    try:
        model, settings = read_model(options.out)
        prompts = read_prompts(options.prompts, settings["vocabulary"])
    except (StoredError, GroupFailure, PromptError, OSError) as error:
        print(f"infer.py: {error}", file=sys.stderr, flush=True)
        return 2
    for prompt in prompts:
        added, probabilities = continuation(model, prompt, options.tokens)
        print(json.dumps({"prompt": prompt, "continuation": added, "probabilities": probabilities}), flush=True)
    return 0


def read_prompts(path: Path, vocabulary: int) -> list[list[int]]:
    """The prompts of a file. Raises PromptError at the first that is not a non-empty list of tokens below `vocabulary`."""
    prompts = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            prompt = json.loads(line)
        except ValueError:
            prompt = None
        good = isinstance(prompt, list) and prompt and all(type(token) is int and 0 <= token < vocabulary for token in prompt)
        if not good:
            raise PromptError(
                f"{path}:{number}: {line[:60]!r} is no list of tokens: write, for example, [1, 5], numbers below {vocabulary}"
            )
        prompts.append(prompt)
    return prompts


@torch.no_grad()
def continuation(model: GPT, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
    """`count` tokens, each the likeliest after all before it, and their probabilities."""
    tokens, probabilities = list(prompt), []
    for _ in range(count):
        last = model(torch.tensor([tokens]))[0, -1].softmax(dim=0)
        best = int(last.argmax())
        tokens.append(best)
        probabilities.append(round(float(last[best]), 6))
    return tokens[len(prompt) :], probabilities


if __name__ == "__main__":
    sys.exit(main())
