"""Greedy and beam search: from the probabilities of the next token to whole sequences.

`generate()` runs these two where its options allow, and transformers' `GenerationMixin` otherwise
(`blocks_generation.py`); both choose the same tokens. What a search knows of a model is a `Stepper`: the logits of the
next token, and a state whose rows can be reordered and dropped.

Shapes: N sentences, M beams of each, C candidates, V vocabulary, L maximum length.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

_IMPOSSIBLE = -1.0e9  # the score of a beam that does not exist, as in transformers
_DROP_SHARE = 8  # finished sentences are dropped when they are an eighth of the batch: moving the others has a cost


class Stepper:
    """A model that continues its prompts, one token at a time. Beams of one sentence are consecutive rows."""

    def first_logits(self) -> Tensor:
        """Read the prompts; the logits (N, V) of the first new token, which all beams of a sentence share."""
        raise NotImplementedError

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token for each row (N * M); the logits (N * M, V) of the next one."""
        raise NotImplementedError

    def reorder(self, parents: Tensor) -> None:
        """Continue beam `parents[n, m]` of sentence n in its beam m."""
        raise NotImplementedError

    def keep(self, sentences: Tensor) -> None:
        """Drop all other sentences."""
        raise NotImplementedError

    def cache(self):
        """The state as transformers' `Cache`."""
        raise NotImplementedError


@dataclass
class SearchOptions:
    """When to stop, and what to choose.

    Args:
        max_length: of prompt and new tokens together.
        eos_token_ids: any of them ends a sequence; the rest of its row is `pad_token_id`.
        process: transformers' logits processors, of those that read the length alone.
        num_beams, length_penalty, early_stopping, num_return_sequences: as in `GenerationConfig`.
        record: keep scores and logits of each step, for all rows: no sentence is dropped.
        row_limits: (N,), the maximum length of each sentence, where it is lower.
    """

    max_length: int
    eos_token_ids: list[int]
    pad_token_id: int
    process: Any
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    num_return_sequences: int = 1
    record: bool = False
    row_limits: Tensor | None = None


@dataclass
class SearchResult:
    """Sequences (rows, L), and what `SearchOptions.record` asks for, one tensor a step."""

    sequences: Tensor
    scores: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    sequences_scores: Tensor | None = None
    beam_indices: Tensor | None = None


def greedy_search(stepper: Stepper, prompts: Tensor, options: SearchOptions) -> SearchResult:
    """Choose the most likely token at every step, until each sequence has its end or `max_length` tokens."""
    batch, start = prompts.shape
    sequences = prompts.new_full((batch, options.max_length), options.pad_token_id)
    sequences[:, :start] = prompts
    result = SearchResult(sequences)
    rows = torch.arange(batch, device=prompts.device)  # the sentence that each row continues
    ends = set(options.eos_token_ids)
    finished: set[int] = set()  # the rows that have their end
    limits = [options.max_length] * batch if options.row_limits is None else options.row_limits.tolist()
    logits = stepper.first_logits()
    for position in range(start, options.max_length):
        logits = logits.float()
        scores = options.process(sequences[: len(rows), :position], logits) if options.process else logits
        tokens = scores.argmax(dim=-1)
        if finished:
            tokens[list(finished)] = options.pad_token_id
        if len(rows) == batch:
            sequences[:, position] = tokens
        else:
            sequences[rows, position] = tokens
        if options.record:
            result.scores.append(scores)
            result.logits.append(logits)
        for row, (token, limit) in enumerate(zip(tokens.tolist(), limits, strict=True)):
            if token in ends or position + 1 >= limit:
                finished.add(row)
        if len(finished) == len(rows) or position + 1 == options.max_length:
            break
        if len(finished) * _DROP_SHARE >= len(rows) and not options.record:
            others = [row for row in range(len(rows)) if row not in finished]
            kept = torch.tensor(others, device=rows.device)
            stepper.keep(kept)
            rows, tokens, finished, limits = rows[kept], tokens[kept], set(), [limits[row] for row in others]
        logits = stepper.step(tokens)
    result.sequences = sequences[:, : position + 1]
    return result


class Finished(NamedTuple):
    """Some sequences of each sentence that have ended.

    Args:
        scores: (N, M), log-probabilities divided by the length penalty.
        ends: (N, M, 3), of the last token: its position (-1: no sequence yet), the beam that it continued, its id.
        is_real: (N, M), whether there is a sequence.
    """

    scores: Tensor
    ends: Tensor
    is_real: Tensor

    def select(self, beams: Tensor) -> "Finished":
        """Of each sentence n, the sequences `beams[n]`, in that order."""
        ends = self.ends.gather(1, beams[:, :, None].expand(-1, -1, 3))
        return Finished(self.scores.gather(1, beams), ends, self.is_real.gather(1, beams))


class BeamSearch:
    """Keep the `num_beams` most likely unfinished sequences of each sentence, and as many of the best finished ones.

    score(y) = log p(y) / |y|^length_penalty for a finished sequence y of |y| new tokens. A sentence is closed when no
    unfinished sequence can beat its finished ones, by the rule that `early_stopping` names. Sequences are not copied
    from step to step: each step stores its tokens and which beams they continue, and `result` follows these back.
    """

    def __init__(self, prompts: Tensor, options: SearchOptions):
        self.prompts, self.options, self.beams = prompts, options, options.num_beams
        batch, self.start = prompts.shape
        device = prompts.device
        # Enough candidates that `num_beams` of them continue, even if every beam ends with every end token.
        self.num_candidates = max(2, 1 + len(options.eos_token_ids)) * self.beams
        self.ends = torch.tensor(options.eos_token_ids, device=device)
        scores = torch.full((batch, self.beams), _IMPOSSIBLE, device=device)
        ends = prompts.new_full((batch, self.beams, 3), -1)
        self.finished = Finished(scores, ends, torch.zeros_like(scores, dtype=torch.bool))
        self.results = Finished(*(part.clone() for part in self.finished))  # of all sentences, those dropped too
        self.has_finished = False  # whether any sequence has ended
        self.scores = scores.clone()  # of the beams
        self.scores[:, 0] = 0.0  # all beams start alike: only the first one counts
        self.tokens = prompts[:, -1:]  # the last of each beam (N, M)
        self.history: list[tuple[Tensor, Tensor, Tensor]] = []  # of each step: sentences, parents and tokens (N, M)
        self.is_open = torch.ones(batch, 1, dtype=torch.bool, device=device)
        self.rows = torch.arange(batch, device=device)  # the place of each sentence in the batch

    def advance(self, log_probs: Tensor, position: int) -> Tensor:
        """Extend the beams by one token (N * M, V); the beam that each new beam continues (N, M)."""
        vocabulary = log_probs.shape[-1]
        totals = log_probs.view(-1, self.beams, vocabulary) + self.scores[:, :, None]
        scores, indices = totals.flatten(1).topk(self.num_candidates)
        parents, tokens = indices // vocabulary, indices % vocabulary
        ends = self.which_end(tokens, position)

        masked = scores if ends is None else scores + ends * _IMPOSSIBLE
        self.scores, best = masked.topk(self.beams)
        chosen, self.tokens = parents.gather(1, best), tokens.gather(1, best)
        self.history.append((self.rows, chosen, self.tokens))
        if ends is not None and bool(ends[:, : self.beams].any()):
            ends[:, self.beams :] = False  # a candidate below the best `num_beams` only stands by
            self.finish(scores, torch.stack([torch.full_like(tokens, position), parents, tokens], dim=-1), ends)
        if self.has_finished:
            self.is_open &= self.can_improve(position + 1 - self.start)
        return chosen

    def which_end(self, tokens: Tensor, position: int) -> Tensor | None:
        """The candidates (N, C) that end a sequence; None if no token does."""
        limits = self.options.row_limits
        if position + 1 == self.options.max_length:
            return torch.ones_like(tokens, dtype=torch.bool)
        if not len(self.ends) and limits is None:
            return None
        ends = torch.isin(tokens, self.ends)
        if limits is not None:
            ends |= (position + 1 >= limits.to(self.rows.device)[self.rows])[:, None]
        return ends if bool(ends.any()) else None

    def finish(self, scores: Tensor, ends: Tensor, has_ended: Tensor) -> None:
        """The best of the finished sequences, old and new."""
        self.has_finished = True
        scores = scores / (int(ends[0, 0, 0]) + 1 - self.start) ** self.options.length_penalty
        is_full = self.finished.is_real.all(dim=1, keepdim=True) & (self.options.early_stopping is True)
        scores = scores + is_full * _IMPOSSIBLE + ~self.is_open * _IMPOSSIBLE + ~has_ended * _IMPOSSIBLE
        new = Finished(scores, ends, has_ended)
        merged = Finished(*(torch.cat(pair, dim=1) for pair in zip(self.finished, new, strict=True)))
        self.finished = merged.select(merged.scores.topk(self.beams).indices)

    def can_improve(self, length: int) -> Tensor:
        """Whether the best running beam could beat the worst finished one (N, 1), if it ended now or, with
        `early_stopping="never"`, at the length that suits it best.
        """
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            length = self.options.max_length - self.start
        best = self.scores[:, :1] / length**self.options.length_penalty
        worst = self.finished.scores.min(dim=1, keepdim=True).values
        return (best > torch.where(self.finished.is_real, worst, _IMPOSSIBLE)).any(dim=1, keepdim=True)

    def is_over(self) -> bool:
        """Whether no sentence can change any more."""
        if not self.has_finished:
            return False
        all_full = self.options.early_stopping is True and bool(self.finished.is_real.all())
        return all_full or not bool(self.is_open.any())

    def drop_closed(self, stepper: Stepper) -> None:
        """Store the results of closed sentences and drop them, if they are many."""
        if not self.has_finished:
            return
        is_open = self.is_open.squeeze(1)
        if self.options.early_stopping is True:
            is_open = is_open & ~self.finished.is_real.all(dim=1)
        if (len(is_open) - int(is_open.sum())) * _DROP_SHARE < len(is_open):
            return
        self.store()
        kept = is_open.nonzero().squeeze(1)
        stepper.keep(kept)
        self.finished = Finished(*(part[kept] for part in self.finished))
        self.scores, self.tokens = self.scores[kept], self.tokens[kept]
        self.is_open, self.rows = self.is_open[kept], self.rows[kept]

    def store(self) -> None:
        for result, part in zip(self.results, self.finished, strict=True):
            result[self.rows] = part

    def result(self) -> SearchResult:
        """The best `num_return_sequences` of each sentence, cut to the longest."""
        self.store()
        count = self.options.num_return_sequences
        traced = self.follow_back(self.results.ends[:, :count].tolist())
        length = max(len(tokens) for tokens, _ in traced)
        sequences = self.prompts.new_full((len(traced), self.start + length), self.options.pad_token_id)
        sequences[:, : self.start] = self.prompts.repeat_interleave(count, dim=0)
        indices = torch.full((len(traced), length), -1, dtype=torch.int)
        for row, (tokens, continued) in enumerate(traced):
            sequences[row, self.start : self.start + len(tokens)] = sequences.new_tensor(tokens)
            indices[row, : len(tokens)] = indices.new_tensor(continued)
        scores = self.results.scores[:, :count].flatten()
        return SearchResult(sequences, sequences_scores=scores, beam_indices=indices.to(sequences.device))

    def follow_back(self, ends: list) -> list[tuple[list[int], list[int]]]:
        """For each sequence its new tokens, and the row of the batch that each of them continued."""
        steps = []
        for rows, parents, tokens in self.history:
            steps.append(dict(zip(rows.tolist(), zip(parents.tolist(), tokens.tolist(), strict=True), strict=True)))
        traced = []
        for sentence, beams in enumerate(ends):
            for position, parent, token in beams:
                new, continued = [], []
                if position >= 0:
                    new, continued = [token], [sentence * self.beams + parent]
                for step in reversed(steps[: max(position - self.start, 0)]):
                    parents, tokens = step[sentence]
                    new.append(tokens[parent])
                    parent = parents[parent]
                    continued.append(sentence * self.beams + parent)
                traced.append((new[::-1], continued[::-1]))
        return traced


def beam_search(stepper: Stepper, prompts: Tensor, options: SearchOptions) -> SearchResult:
    """The best sequences that a search with `num_beams` beams finds for each sentence (N prompts)."""
    search, all_scores, all_logits = BeamSearch(prompts, options), [], []
    logits = stepper.first_logits().repeat_interleave(options.num_beams, dim=0)
    for position in range(prompts.shape[1], options.max_length):
        logits = logits.float()
        log_probs = logits.log_softmax(dim=-1)
        if options.process:
            log_probs = options.process(prompts.new_zeros(1, 1).expand(len(logits), position), log_probs)
        if options.record:
            all_scores.append(log_probs)
            all_logits.append(logits)
        parents = search.advance(log_probs, position)
        is_last = position + 1 == options.max_length or search.is_over()
        if is_last and not options.record:
            break
        stepper.reorder(parents)
        if is_last:
            break
        if not options.record:
            search.drop_closed(stepper)
        logits = stepper.step(search.tokens.flatten())
    result = search.result()
    result.scores, result.logits = all_scores, all_logits
    return result
