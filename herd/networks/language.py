"""Turns instructions into features with an LSTM over word embeddings (IMPALA Fig. 3, language levels).

Shapes: T rows, B unrolls, L words per instruction. The environment hashes words to ids; 0 is padding after the last word.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EMBEDDING_SIZE = 20
LANGUAGE_SIZE = 64


class InstructionEncoder(nn.Module):
    """The LSTM's output after the last word; zero for an empty instruction."""

    def __init__(self, num_words: int) -> None:
        """``num_words``: number of ids, including that of the padding."""
        super().__init__()
        self.embedding = nn.Embedding(num_words, EMBEDDING_SIZE)
        self.lstm = nn.LSTM(EMBEDDING_SIZE, LANGUAGE_SIZE, batch_first=True)

    def forward(self, instructions: Tensor) -> Tensor:
        """int64 ids [T, B, L] -> float32 [T, B, 64]."""
        num_rows, batch, _ = instructions.shape
        # An instruction lasts a whole game, so an unroll has few different ones: each is read once.
        words = instructions.flatten(0, 1)
        if words.is_cuda:
            # How many are distinct is a number that the host would wait for; reading all costs a GPU less.
            return self.read(words).view(num_rows, batch, LANGUAGE_SIZE)
        distinct, which = torch.unique(words, dim=0, return_inverse=True)
        return self.read(distinct)[which].view(num_rows, batch, LANGUAGE_SIZE)

    def read(self, words: Tensor) -> Tensor:
        """[N, L] -> [N, 64]; repeated instructions are read again."""
        outputs, _ = self.lstm(self.embedding(words))
        num_words = (words != 0).sum(dim=1)
        # The LSTM is causal, so its output at the last word does not depend on the padding.
        last = (num_words - 1).clamp(min=0)[:, None, None].expand(-1, 1, LANGUAGE_SIZE)
        features: Tensor = outputs.gather(1, last).squeeze(1) * (num_words > 0).unsqueeze(1)
        return features
