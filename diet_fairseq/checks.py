"""Old name of `errors`."""

from .errors import MAX_UNTRUSTED_VALUES as LARGEST
from .errors import check_at_least as not_below
from .errors import check_betas as betas
from .errors import check_not_negative as not_negative
from .errors import check_positive as positive

__all__ = ["LARGEST", "betas", "not_below", "not_negative", "positive"]
