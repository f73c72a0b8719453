"""Faults of positions that tokens move, and of the scores of such positions."""

import torch

from diet_fairseq.attention import moving
from diet_fairseq.positions import scores
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Differences

from .catching import instead_of


@instead_of(moving, "sum_steps")
def padding_that_moves(original, scheme, x, layout):
    return scheme.steps(x, layout).cumsum(2)


@instead_of(moving, "sum_steps")
def sums_without_the_token_itself(original, scheme, x, layout):
    sums = original(scheme, x, layout)
    return torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], 2)


@instead_of(moving, "sum_steps")
def sums_from_the_end(original, scheme, x, layout):
    sums = original(scheme, x, layout)
    return sums[:, :, -1:] - torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], 2)


@instead_of(moving, "join_parts")
def a_cache_that_forgets(original, x, r):
    return torch.zeros_like(original(x, r))


@instead_of(Layout, "move")
def queries_at_the_first_position(original, self, at_queries, at_keys):
    return original(self, at_queries[:, :, :1].expand_as(at_queries), at_keys)


@instead_of(scores, "count_parts")
def one_part_of_a_difference(original, dtype):
    return 1


@instead_of(scores, "count_parts")
def two_parts_of_a_difference(original, dtype):
    return min(original(dtype), 2)


@instead_of(Differences, "dense")
def differences_with_the_other_sign(original, self, layout):
    return -original(self, layout)
