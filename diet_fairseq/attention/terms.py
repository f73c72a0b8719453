"""The terms of position schemes in attention: scale, scores, transforms."""

from functools import reduce

import torch
from torch import Tensor

from ..errors import UserError
from ..positions import PositionScheme
from ..positions.layout import Layout
from ..positions.scores import Dense, Score, Sum

#: the schemes of one attention call: of positions and of segments
Schemes = tuple[PositionScheme, ...]
#: the scores whose sum is added to q k^T
Scores = tuple[Score, ...]
#: the types of scores that a backend reads
NativeScore = type[Score] | tuple[type[Score], ...] | None


def find_moving_scheme(schemes: Schemes) -> PositionScheme | None:
    """The scheme whose `PositionScheme.steps` move positions; None: no scheme has steps."""
    return next((scheme for scheme in schemes if scheme.moves), None)


def compute_scores(schemes: Schemes, layout: Layout, native: NativeScore = None) -> Scores:
    """The scores of schemes, which depend on the tokens' content only by `Layout.moved`.

    Scores of the type ``native`` are returned unchanged, for a backend that reads them. All others
    are summed into one `Dense`, which layers can share.

    Raises:
        UserError: a score has another type than its scheme declares
    """
    scores = [
        part
        for scheme in schemes
        if (score := compute_score(scheme, layout)) is not None
        for part in split_sum(score, layout, native)
    ]
    unchanged = tuple(score for score in scores if native and isinstance(score, native))
    rest = dense_sum(tuple(score for score in scores if score not in unchanged), layout)
    return unchanged if rest is None else (*unchanged, Dense(rest))


def split_sum(score: Score, layout: Layout, native: NativeScore) -> Scores:
    """The parts of a `Sum` if a backend reads all of them; otherwise the score itself."""
    if isinstance(score, Sum) and native and all(issubclass(t, native) for t in score.part_types):
        return score.split(layout) or (score,)
    return (score,)


def compute_score(scheme: PositionScheme, layout: Layout) -> Score | None:
    """The score of a scheme, or None, checked against `PositionScheme.score_type`.

    Raises:
        UserError: the score has another type, so backends selected by `score_type` would be wrong
    """
    score = scheme.score(layout)
    if scheme.moves and isinstance(score, Dense):
        return score  # all backends of schemes with steps compute it
    if score is not None and not isinstance(score, scheme.score_type):
        name, kind = type(scheme).__name__, type(score).__name__
        raise UserError(
            f"{name}.score returns {kind}, but {name}.score_type is {scheme.score_type.__name__}: "
            f"write score_type = {kind} in the class"
        )
    return score


def dense_sum(scores: Scores, layout: Layout) -> Tensor | None:
    """The sum of the scores, (B|1, H|1, Tq, Tk); None if there are no scores."""
    return reduce(torch.add, [score.dense(layout) for score in scores]) if scores else None


def prepare_schemes(schemes: Schemes, layout: Layout) -> None:
    """Call `PositionScheme.prepare` of the schemes that all layers of self-attention share.

    In self-attention there are as many new keys as queries. A scheme with steps needs the layer's
    input first.
    """
    for scheme in schemes:
        if "transform" in scheme.kinds and not scheme.moves:
            scheme.prepare(layout.last_keys(layout.query_positions.size(1)))


def transform_queries_and_keys(
    schemes: Schemes, q: Tensor, k: Tensor, layout: Layout
) -> tuple[Tensor, Tensor]:
    """Queries and keys after `PositionScheme.transform` of all schemes.

    Args:
        schemes: the schemes of the call
        q: (B, H, Tq, d_h), scaled
        k: (B, H, new keys, d_h): the last keys of the layout, possibly all or none of them
        layout: the positions of the queries and of all keys

    Returns:
        q and k, in the same shapes or wider (`PositionScheme.widening`)
    """
    for scheme in schemes:
        if "transform" in scheme.kinds:
            q, k = scheme.transform(q, k, layout.last_keys(k.size(2)))
    return q, k


def term_kinds(schemes: Schemes) -> frozenset[str]:
    """The kinds of terms of all these schemes, see `positions.base.KINDS`."""
    return frozenset().union(*(scheme.kinds for scheme in schemes))


def score_terms(schemes: Schemes) -> int:
    """The number of terms that share the scale of the content score."""
    return max([1, *(scheme.score_terms for scheme in schemes)])  # torch.compile lacks `default`


def query_scale(schemes: Schemes, head_dim: int) -> float:
    """The factor of queries: (score_terms d_h)^-1/2."""
    return (score_terms(schemes) * head_dim) ** -0.5


def drop_none(*schemes: PositionScheme | None) -> Schemes:
    """The schemes that are not None."""
    return tuple(scheme for scheme in schemes if scheme is not None)
