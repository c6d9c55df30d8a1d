"""Values with the structure of expert routing: choices of experts, tokens per group (worker side)."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from .errors import CaseError
from .tensors import TensorSpec
from .values import torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from .values import ValueMaker

__all__ = ["Spread", "expert_choices", "group_list", "group_sizes"]

#: How work spreads over groups: as even as whole numbers allow, by independent fair draws, or by a power law
#: (group of rank r weighs 1 / r) over shuffled groups.
Spread = Literal["even", "multinomial", "zipf"]

_CHUNK = 1 << 24


def _weights(make: ValueMaker, groups: int, spread: Spread, empty: int) -> Tensor:
    """Return the weight of each group; *empty* randomly chosen ones weigh nothing."""
    import torch

    if not 0 <= empty < max(groups, 1):
        raise CaseError(f"{empty} of {groups} groups empty, expected at least one with work")
    order = torch.randperm(groups, generator=make.generator)
    weights = torch.ones(groups, dtype=torch.float64)
    if spread == "zipf":
        weights[order] = 1.0 / torch.arange(1, groups + 1, dtype=torch.float64)
    weights[order[groups - empty :]] = 0.0
    return weights


def group_sizes(
    make: ValueMaker, total: int, groups: int, *, spread: Spread = "multinomial", empty: int = 0
) -> tuple[int, ...]:
    """Split *total* tokens over *groups*; the sum is exact and groups may get none.

    Args:
        make: Source of the case's randomness.
        total: Tokens.
        groups: Groups (experts).
        spread: See :data:`Spread`.
        empty: Groups that get no token at all, chosen at random.
    """
    import torch

    weights = _weights(make, groups, spread, empty)
    if spread == "even":
        busy = [group for group in range(groups) if weights[group] > 0]
        base, rest = divmod(total, len(busy))
        sizes = [0] * groups
        for place, group in enumerate(busy):
            sizes[group] = base + (place < rest)
        return tuple(sizes)
    if total == 0:
        return (0,) * groups
    drawn = torch.multinomial(weights, total, replacement=True, generator=make.generator)
    return tuple(torch.bincount(drawn, minlength=groups).tolist())


def group_list(
    make: ValueMaker,
    spec: TensorSpec,
    total: int,
    *,
    kind: Literal["cumulative", "counts"] = "cumulative",
    spread: Spread = "multinomial",
    empty: int = 0,
) -> Tensor:
    """Return the group list of a grouped matmul: one entry a group, running sums or counts, adding up to *total*."""
    sizes = group_sizes(make, total, math.prod(spec.shape or (1,)), spread=spread, empty=empty)
    values = list(accumulate(sizes)) if kind == "cumulative" else list(sizes)
    return make.tensor(values, spec.dtype).reshape(spec.shape or ())


def expert_choices(
    make: ValueMaker, spec: TensorSpec, experts: int, *, spread: Spread = "multinomial", empty: int = 0
) -> Tensor:
    """Return for each token its experts ``(tokens, k)``: k distinct ones of *experts*, in random order.

    Args:
        make: Source of the case's randomness.
        spec: Shape ``(..., k)`` and dtype.
        experts: Experts to choose from.
        spread: ``multinomial`` is fair, ``zipf`` a power law; ``even`` gives every expert the same load within one
            token.
        empty: Experts nobody chooses.

    Raises:
        CaseError: A token is to have more experts than there are.
    """
    import torch

    shape = spec.shape or (1,)
    k, tokens = shape[-1], math.prod(shape[:-1])
    weights = _weights(make, experts, spread, empty)
    if k > experts - empty:
        raise CaseError(f"{k} distinct experts a token of {experts - empty}")
    if spread == "even":
        # Dealing a shuffled deck round and round: any k cards in a row differ.
        deck = torch.randperm(experts, generator=make.generator)
        deck = deck[weights[deck] > 0]
        choices = deck[torch.arange(tokens * k) % len(deck)].reshape(tokens, k)
        choices = choices[torch.randperm(tokens, generator=make.generator)]
    else:
        logs = weights.log().to(torch.float32)
        step = max(1, _CHUNK // experts)
        parts = []
        for start in range(0, tokens, step):
            rows = min(step, tokens - start)
            # The k largest of log-weight plus Gumbel noise are a draw of k without replacement.
            noise = (
                torch.rand(rows, experts, generator=make.generator)
                .clamp_(min=1e-20)
                .log_()
                .neg_()
                .log_()
                .neg_()
            )
            parts.append((noise + logs).topk(k, dim=-1).indices)
        choices = torch.cat(parts) if parts else torch.empty((0, k), dtype=torch.int64)
    return make.place(choices.reshape(shape).to(torch_dtype(spec.dtype)))
