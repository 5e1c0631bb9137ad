"""The gpt job's model: its sizes, its causality, its positions, and that nothing in it pins a dtype."""

import math
from collections.abc import Iterator

import pytest
import torch

from workloads.gpt import model as gpt


@pytest.fixture
def double() -> Iterator[None]:
    """float64 by default, as an exact numeric run sets it."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def small() -> torch.nn.Module:
    torch.manual_seed(0)
    model: torch.nn.Module = gpt.GPT(gpt.Shape(layers=2, width=32, heads=2, hidden=48, vocabulary=11))
    return model


@pytest.mark.parametrize(("size", "parameters"), [("1m", 1e6), ("10m", 10e6), ("124m", 124e6), ("350m", 350e6), ("1b", 1e9)])
def test_a_size_is_what_its_name_says(size: str, parameters: float) -> None:
    """Parameters within 10 % of the name, counted without allocating them."""
    with torch.device("meta"):
        model = gpt.GPT(gpt.shape_of(size, 64))

    assert gpt.parameter_count(model) == pytest.approx(parameters, rel=0.1)


def test_unknown_size_lists_the_known() -> None:
    """The error names the value and the choices."""
    with pytest.raises(ValueError, match=r"size = '2m' is unknown: choose one of 1m, 10m"):
        gpt.shape_of("2m", 64)


@pytest.mark.usefixtures("double")
def test_no_token_sees_the_future() -> None:
    """Changing token 5 changes the logits from position 5 on and none before it."""
    model, tokens = small(), torch.arange(8).repeat(2, 1)
    changed = tokens.clone()
    changed[:, 5] = 10
    difference = (model(tokens) - model(changed)).abs().amax(dim=(0, 2))

    assert difference[:5].max() == 0
    assert difference[5:].min() > 0


@pytest.mark.usefixtures("double")
def test_rotation_depends_on_distance_alone() -> None:
    """The product of a query at position a and a key at b is that of any other pair b - a apart."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 8)
    turned_q, turned_k = (gpt.rotate(x.expand(1, 1, 10, 8), gpt.turns(10, 8, torch.device("cpu")))[0, 0] for x in (query, key))
    products = turned_q @ turned_k.T

    for distance in range(10):
        along = products.diagonal(distance)
        assert along.max() - along.min() < 1e-12, distance
    assert products[0, 0] == pytest.approx(float(query @ key))


def test_everything_follows_the_default_dtype(double: None) -> None:
    """Logits, loss and gradients are float64 when that is the default: no hidden cast."""
    model, tokens = small(), torch.arange(8).repeat(2, 1)
    logits = model(tokens)
    loss = gpt.token_losses(logits, tokens).mean()
    loss.backward()  # type: ignore[no-untyped-call]

    assert (logits.dtype, loss.dtype) == (torch.float64, torch.float64)
    assert {weight.grad.dtype for weight in model.parameters() if weight.grad is not None} == {torch.float64}
    assert all(weight.grad is not None for weight in model.parameters())


def test_loss_of_a_model_that_knows_nothing() -> None:
    """Equal logits over 11 tokens cost ln 11 nats; bfloat16 logits are judged in the default dtype."""
    losses = gpt.token_losses(torch.zeros(2, 3, 11, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.int64))

    assert (losses.shape, losses.dtype) == ((2, 3), torch.float32)
    assert losses.tolist() == [[pytest.approx(math.log(11))] * 3] * 2


def test_initial_loss_is_near_that_of_a_uniform_guess() -> None:
    """Small initial weights make a nearly uniform prediction."""
    tokens = torch.randint(0, 11, (16, 8), generator=torch.Generator().manual_seed(0))

    loss = gpt.token_losses(small()(tokens), tokens).mean()

    assert loss.item() == pytest.approx(math.log(11), rel=0.02)
