"""The order of samples: each once per epoch, the same at every world size, resumable anywhere."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

pytest.importorskip("hypothesis", reason='hypothesis is not installed: pip install -e ".[dev]"')

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.sampler import GlobalBatches, Order, Position, after, own_generator, permutation

orders = st.builds(Order, n_samples=st.integers(1, 60), global_batch=st.integers(1, 70), seed=st.integers(0, 5))
SETTINGS = settings(max_examples=60, deadline=None)


def whole_batches(order: Order, last_step: int, world_size: int = 1, start: Position = Position()) -> list[list[int]]:  # noqa: B008 (frozen)
    """The global batches of the steps, put together from what every rank is given."""
    ranks = [list(GlobalBatches(order, start, last_step, rank, world_size)) for rank in range(world_size)]
    return [np.concatenate([one.own for one in together]).tolist() for together in zip(*ranks, strict=True)]


def steps_per_epoch(order: Order) -> int:
    return -(-order.n_samples // order.global_batch)


@SETTINGS
@given(orders, st.integers(1, 5))
def test_each_sample_once_per_epoch_at_any_world_size(order: Order, world_size: int) -> None:
    per_epoch = steps_per_epoch(order)
    batches = whole_batches(order, 2 * per_epoch, world_size)
    for epoch in range(2):
        seen = [sample for batch in batches[epoch * per_epoch : (epoch + 1) * per_epoch] for sample in batch]
        assert sorted(seen) == list(range(order.n_samples)), f"epoch {epoch} at world size {world_size}"


@SETTINGS
@given(orders, st.integers(2, 5), st.integers(1, 12))
def test_ranks_together_consume_the_one_device_batch_in_order(order: Order, world_size: int, last_step: int) -> None:
    assert whole_batches(order, last_step, world_size) == whole_batches(order, last_step)


@SETTINGS
@given(orders, st.integers(1, 5))
def test_slices_differ_by_at_most_one_sample(order: Order, world_size: int) -> None:
    for step in zip(*(GlobalBatches(order, Position(), 3, rank, world_size) for rank in range(world_size)), strict=True):
        sizes = [len(one.own) for one in step]
        assert max(sizes) - min(sizes) <= 1, sizes


@SETTINGS
@given(orders, st.integers(0, 12), st.integers(1, 4), st.integers(1, 12))
def test_resuming_anywhere_at_another_world_size_goes_on_as_if_uninterrupted(order: Order, done: int, world_size: int, more: int) -> None:
    position = Position()
    for _ in range(done):
        position = after(position, order)
    assert position.step == done
    assert whole_batches(order, done + more, world_size, position) == whole_batches(order, done + more)[done:]


class Numbers(Dataset[int]):
    """The numbers 0 to 7."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def test_epochs_and_seeds_give_different_orders() -> None:
    orders_seen = {tuple(permutation(Order(40, 8, seed), epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders_seen) == 9, "seed 0 epoch 1 must not be seed 1 epoch 0"


def test_a_loader_with_its_own_generator_leaves_the_global_one_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    loader: DataLoader[int] = DataLoader(Numbers(), batch_size=2, generator=own_generator(0))
    assert len(list(loader)) == 4
    assert torch.equal(torch.get_rng_state(), before)
