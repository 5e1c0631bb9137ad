"""The token source of the gpt job: its entropy against hand calculations, and its draws against its probabilities."""

import math

import numpy as np
import pytest

from workloads.gpt import source


def test_entropy_of_two_tokens_by_hand() -> None:
    """Stay with 1/2, and always return: pi = (2/3, 1/3), so H = 2/3 ln 2."""
    transition = np.array([[0.5, 0.5], [1.0, 0.0]])
    stationary = source.stationary_distribution(transition)

    assert stationary == pytest.approx([2 / 3, 1 / 3])
    assert source.entropy_rate(transition, stationary) == pytest.approx(2 / 3 * math.log(2))


def test_entropy_needs_one_connected_source() -> None:
    """Two tokens that never meet have no single stationary distribution."""
    with pytest.raises(ValueError, match="parts that never meet"):
        source.stationary_distribution(np.eye(2))


@pytest.mark.parametrize("vocabulary", [16, 64, 256])
def test_source_is_a_distribution_and_repeats(vocabulary: int) -> None:
    """Rows sum to one exactly (they are counts of 32 slots), the stationary distribution is left as it is, the seed decides."""
    first, again, other = (source.make_source(vocabulary, seed) for seed in (5, 5, 6))

    assert (first.transition.sum(axis=1) == 1).all()
    assert np.abs(first.stationary @ first.transition - first.stationary).max() < 1e-14
    assert np.array_equal(first.successors, again.successors)
    assert not np.array_equal(first.successors, other.successors)
    assert 0 < first.entropy_nats < math.log(vocabulary)


def test_draws_follow_the_source() -> None:
    """Over a million tokens the source's own loss equals its entropy within four standard errors, and token shares are stationary."""
    made = source.make_source(64, 0)
    tokens = source.draw_sequences(made, 0, 8192, 129, 0)
    losses = -np.log(made.transition[tokens[:, :-1], tokens[:, 1:]]).mean(axis=1)
    error = losses.std(ddof=1) / math.sqrt(len(losses))

    assert abs(losses.mean() - made.entropy_nats) < 4 * error
    assert source.source_loss(made, tokens) == pytest.approx(losses.mean())
    for position in (0, 128):
        share = np.bincount(tokens[:, position], minlength=64) / len(tokens)
        chi_square = len(tokens) * ((share - made.stationary) ** 2 / made.stationary).sum()
        assert chi_square < 63 + 5 * math.sqrt(2 * 63), f"position {position}"


def test_a_sequence_depends_on_its_number_alone() -> None:
    """Sequences 3 and 4 are the same whether drawn alone or among others; two numbers or seeds give two sequences."""
    made = source.make_source(64, 0)
    many, few = source.draw_sequences(made, 0, 8, 33, 7), source.draw_sequences(made, 3, 2, 33, 7)

    assert np.array_equal(many[3:5], few)
    assert not np.array_equal(many[3], many[4])
    assert not np.array_equal(few, source.draw_sequences(made, 3, 2, 33, 8))
