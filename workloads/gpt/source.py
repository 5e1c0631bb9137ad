"""Tokens from a Markov source of known entropy, so that the best loss any model can reach is known exactly.

Every token has `SLOTS` equally likely slots for its successor; a successor that fills several slots is that much likelier. Drawing a
token is thus one integer and one look-up, and the transition matrix holds exact multiples of 1/SLOTS.

With first-order memory and a first token drawn from the stationary distribution, the expected cross-entropy of a next-token prediction
is at least the entropy rate H = -sum_i pi_i sum_j P_ij ln P_ij nats (Cover and Thomas, Elements of Information Theory, theorem 4.2.4),
at every position of a sequence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOTS = 32
DECAY = 0.3  # how fast a token's successors become rarer; gives about 1.8 nats of 4.2 for 64 tokens


@dataclass(frozen=True, slots=True)
class Source:
    """`successors` (vocabulary, SLOTS) tokens; `transition` (vocabulary, vocabulary); `stationary` (vocabulary,); nats per token."""

    successors: NDArray[np.int32]
    transition: NDArray[np.float64]
    stationary: NDArray[np.float64]
    entropy_nats: float

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return len(self.successors)


def make_source(vocabulary: int, seed: int) -> Source:
    """The source that this vocabulary and seed always give; ValueError where its entropy is not defined."""
    if vocabulary < 2:
        raise ValueError(f"vocabulary = {vocabulary}: a source needs at least 2 tokens")
    generator = np.random.default_rng([seed, vocabulary])
    ranks = np.minimum(generator.geometric(DECAY, (vocabulary, SLOTS)) - 1, vocabulary - 1)
    favourites = np.argsort(generator.random((vocabulary, vocabulary)), axis=1)
    successors = np.take_along_axis(favourites, ranks, axis=1).astype(np.int32)
    transition = np.stack([np.bincount(row, minlength=vocabulary) for row in successors]) / SLOTS
    stationary = stationary_distribution(transition)
    return Source(successors, transition, stationary, entropy_rate(transition, stationary))


def stationary_distribution(transition: NDArray[np.float64]) -> NDArray[np.float64]:
    """The only distribution (vocabulary,) that one step of the source leaves as it is; ValueError if there are several."""
    size = len(transition)
    drift = transition.T - np.eye(size)
    if np.linalg.matrix_rank(drift) != size - 1:
        raise ValueError(f"a source of {size} tokens falls into parts that never meet: choose another seed or a larger vocabulary")
    system = np.vstack([drift, np.ones(size)])
    solution = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    shares = np.maximum(solution, 0.0).astype(np.float64)
    normalised: NDArray[np.float64] = shares / shares.sum()
    return normalised


def entropy_rate(transition: NDArray[np.float64], stationary: NDArray[np.float64]) -> float:
    """Nats per token that no predictor can do without."""
    logs = np.log(np.where(transition > 0, transition, 1.0))
    return float(-(stationary[:, None] * transition * logs).sum())


def draw_sequences(source: Source, first: int, count: int, length: int, seed: int) -> NDArray[np.int32]:
    """Sequences `first` to `first + count` of this seed, shape (count, length); each depends on its own number alone."""
    tokens = np.empty((count, length), np.int32)
    choices = np.empty((count, length), np.int32)
    for row in range(count):
        choices[row] = np.random.Generator(np.random.Philox(key=[seed, first + row])).integers(0, 1 << 30, length, np.int32)
    edges = np.cumsum(source.stationary)
    tokens[:, 0] = np.searchsorted(edges[:-1], choices[:, 0] / (1 << 30), side="right")
    for position in range(1, length):
        tokens[:, position] = source.successors[tokens[:, position - 1], choices[:, position] % SLOTS]
    return tokens


def source_loss(source: Source, tokens: NDArray[np.int32]) -> float:
    """Mean nats per predicted token of the source's own probabilities on these sequences: the fair yardstick for a finite sample."""
    return float(-np.log(source.transition[tokens[:, :-1], tokens[:, 1:]]).mean())
