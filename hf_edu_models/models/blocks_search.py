"""Greedy and beam search: from the probabilities of the next token to whole sequences.

`generate()` runs these two where its options allow, and transformers' `GenerationMixin` otherwise
(`blocks_generation.py`); both choose the same tokens. What a search knows of a model is a `Stepper`: the logits of the
next token, and a state whose rows can be reordered and dropped.

Shapes: N sentences, M beams of each, C candidates, V vocabulary, L maximum length.
"""

from dataclasses import dataclass, field
from typing import Any

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


class Hypotheses:
    """Some sequences of each sentence, with their scores.

    Args:
        paths: (N, M, 2, L): token ids, and the row that each new token continued.
        scores: (N, M): log-probabilities, divided by the length penalty once a sequence has ended.
    """

    def __init__(self, paths: Tensor, scores: Tensor):
        self.paths, self.scores = paths, scores

    def select(self, beams: Tensor) -> "Hypotheses":
        """Of each sentence n, the hypotheses `beams[n]`, in that order."""
        sentences = torch.arange(len(beams), device=beams.device)[:, None]
        return Hypotheses(self.paths[sentences, beams], self.scores.gather(1, beams))

    def keep(self, sentences: Tensor) -> "Hypotheses":
        return Hypotheses(self.paths[sentences], self.scores[sentences])


class BeamSearch:
    """Keep the `num_beams` most likely unfinished sequences of each sentence, and as many of the best finished ones.

    score(y) = log p(y) / |y|^length_penalty for a finished sequence y of |y| new tokens. A sentence is closed when no
    unfinished sequence can beat its finished ones, by the rule that `early_stopping` names.
    """

    def __init__(self, prompts: Tensor, options: SearchOptions):
        self.options, self.beams = options, options.num_beams
        batch, self.start = prompts.shape
        device = prompts.device
        # Enough candidates that `num_beams` of them continue, even if every beam ends with every end token.
        self.num_candidates = max(2, 1 + len(options.eos_token_ids)) * self.beams
        self.ends = torch.tensor(options.eos_token_ids, device=device)
        paths = prompts.new_full((batch, self.beams, 2, options.max_length), -1)
        paths[:, :, 0] = options.pad_token_id
        paths[:, :, 0, : self.start] = prompts[:, None]
        scores = torch.full((batch, self.beams), _IMPOSSIBLE, device=device)
        self.finished = Hypotheses(paths.clone(), scores.clone())
        scores[:, 0] = 0.0  # all beams start alike: only the first one counts
        self.running = Hypotheses(paths, scores)
        self.is_finished = torch.zeros(batch, self.beams, dtype=torch.bool, device=device)
        self.is_open = torch.ones(batch, 1, dtype=torch.bool, device=device)
        self.rows = torch.arange(batch, device=device)  # the place of each sentence in the batch
        self.results = Hypotheses(self.finished.paths.clone(), self.finished.scores.clone())

    def advance(self, log_probs: Tensor, position: int) -> Tensor:
        """Extend the beams by one token (N * M, V); the beam that each new beam continues (N, M)."""
        vocabulary = log_probs.shape[-1]
        totals = log_probs.view(-1, self.beams, vocabulary) + self.running.scores[:, :, None]
        scores, indices = totals.flatten(1).topk(self.num_candidates)
        parents, tokens = indices // vocabulary, indices % vocabulary
        is_last = position + 1 == self.options.max_length
        ends = torch.ones_like(tokens, dtype=torch.bool) if is_last else torch.isin(tokens, self.ends)
        if self.options.row_limits is not None:
            ends |= (position + 1 >= self.options.row_limits.to(self.rows.device)[self.rows])[:, None]

        old = self.running
        masked = scores + ends * _IMPOSSIBLE
        best = masked.topk(self.beams).indices
        chosen = parents.gather(1, best)
        self.running = self.extend(old, chosen, tokens.gather(1, best), masked.gather(1, best), position)
        just_finished = ends[:, : self.beams]  # a candidate below the best `num_beams` only stands by
        if just_finished.any():
            ended = self.extend(old, parents, tokens, scores, position)
            self.finish(ended, torch.nn.functional.pad(just_finished, (0, ends.shape[1] - self.beams)), position)
        self.is_open &= self.can_improve(position + 1 - self.start)
        return chosen

    def extend(self, old: Hypotheses, parents: Tensor, tokens: Tensor, scores: Tensor, position: int) -> Hypotheses:
        """Each old hypothesis `parents[n, m]` with one more token."""
        sentences = torch.arange(len(parents), device=parents.device)[:, None]
        paths = old.paths[sentences, parents]
        paths[:, :, 0, position] = tokens
        paths[:, :, 1, position] = self.rows[:, None] * self.beams + parents
        return Hypotheses(paths, scores)

    def finish(self, ended: Hypotheses, has_ended: Tensor, position: int) -> None:
        """The best of the finished hypotheses, old and new."""
        scores = ended.scores / (position + 1 - self.start) ** self.options.length_penalty
        is_full = self.is_finished.all(dim=1, keepdim=True) & (self.options.early_stopping is True)
        scores = scores + is_full * _IMPOSSIBLE + ~self.is_open * _IMPOSSIBLE + ~has_ended * _IMPOSSIBLE
        merged = Hypotheses(
            torch.cat([self.finished.paths, ended.paths], dim=1), torch.cat([self.finished.scores, scores], dim=1)
        )
        best = merged.scores.topk(self.beams).indices
        self.finished = merged.select(best)
        self.is_finished = torch.cat([self.is_finished, has_ended], dim=1).gather(1, best)

    def can_improve(self, length: int) -> Tensor:
        """Whether the best running beam could beat the worst finished one (N, 1), if it ended now or, with
        `early_stopping="never"`, at the length that suits it best.
        """
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            length = self.options.max_length - self.start
        best = self.running.scores[:, :1] / length**self.options.length_penalty
        worst = self.finished.scores.min(dim=1, keepdim=True).values
        return (best > torch.where(self.is_finished, worst, _IMPOSSIBLE)).any(dim=1, keepdim=True)

    def is_over(self) -> bool:
        """Whether no sentence can change any more."""
        all_full = self.options.early_stopping is True and bool(self.is_finished.all())
        return all_full or not bool(self.is_open.any())

    def drop_closed(self, stepper: Stepper, tokens: Tensor) -> Tensor:
        """Store the results of closed sentences and drop them, if they are many; the tokens (N * M) of the others."""
        is_open = self.is_open.squeeze(1)
        if self.options.early_stopping is True:
            is_open = is_open & ~self.is_finished.all(dim=1)
        if (len(is_open) - int(is_open.sum())) * _DROP_SHARE < len(is_open):
            return tokens
        self.store()
        kept = is_open.nonzero().squeeze(1)
        stepper.keep(kept)
        self.running, self.finished = self.running.keep(kept), self.finished.keep(kept)
        self.is_finished, self.is_open, self.rows = self.is_finished[kept], self.is_open[kept], self.rows[kept]
        return tokens.view(-1, self.beams)[kept].flatten()

    def store(self) -> None:
        self.results.paths[self.rows] = self.finished.paths
        self.results.scores[self.rows] = self.finished.scores

    def result(self) -> SearchResult:
        """The best `num_return_sequences` of each sentence, cut to the longest."""
        self.store()
        count = self.options.num_return_sequences
        tokens, indices = self.results.paths[:, :count].flatten(0, 1).unbind(dim=1)
        length = int((indices >= 0).sum(dim=1).max())
        indices = indices[:, self.start : self.start + length].int()
        scores = self.results.scores[:, :count].flatten()
        return SearchResult(tokens[:, : self.start + length], sequences_scores=scores, beam_indices=indices)


def beam_search(stepper: Stepper, prompts: Tensor, options: SearchOptions) -> SearchResult:
    """The best sequences that a search with `num_beams` beams finds for each sentence (N prompts)."""
    search, all_scores, all_logits = BeamSearch(prompts, options), [], []
    logits = stepper.first_logits().repeat_interleave(options.num_beams, dim=0)
    for position in range(prompts.shape[1], options.max_length):
        logits = logits.float()
        log_probs = logits.log_softmax(dim=-1)
        if options.process:
            log_probs = options.process(search.running.paths[:, :, 0, :position].flatten(0, 1), log_probs)
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
        tokens = search.running.paths[:, :, 0, position].flatten()
        logits = stepper.step(tokens if options.record else search.drop_closed(stepper, tokens))
    result = search.result()
    result.scores, result.logits = all_scores, all_logits
    return result
