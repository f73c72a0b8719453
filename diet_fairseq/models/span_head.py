"""The head that scores every token as the beginning and the end of an answer."""

from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor


class SpanHead(RobertaClassificationHead):
    """RoBERTa's classification head, on every token: (B, T, d) -> (B, T, 2).

    BERT has one linear layer there (Devlin et al. 2019, section 4.2). This one has RoBERTa's inner
    layer, too, so that fairseq saves and loads it, and fills it in for a checkpoint without it, as
    any classification head.
    """

    #: the model's ``classification_head_name`` gives such a head all features
    every_token = True

    def forward(self, features: Tensor, **kwargs: object) -> Tensor:
        x = self.activation_fn(self.dense(self.dropout(features)))  # (B, T, inner)
        return self.out_proj(self.dropout(x))
