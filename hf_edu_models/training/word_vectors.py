"""The fast trainer of word vectors: each step updates, in place, only the vectors of its words."""

from __future__ import annotations

import re
from typing import Any

import torch

from ..data.graphs import Graph, score_nodes, walks_as_corpus
from ..data.word_vectors import WordRows
from ..models.blocks_word_vectors import BandTable, InputVectors, SparseAdagrad, cbow_step, glove_step, skip_gram_step
from ..run_folder import read_results, write_results
from ..tasks import task_of_class
from .arguments import WordVectorsArguments
from .run import Run
from .trainers import EduTrainer

_BLOCKS_AT_ONCE = {"skip_gram": 8, "cbow": 16, "glove": 8}  # of one update, at most
_REPEATS = 8  # of the most frequent word in one update: the sum of many more gradients of one vector diverges
_UPDATES_OF_PARTS = 4  # updates for which the parts of fastText's words are summed once
_PAIRS_AT_ONCE = 4096  # of GloVe


def graph_corpus(args: WordVectorsArguments, graph: Graph, seed: int) -> Any:
    """The random walks of a graph as a corpus, by the options of a run."""
    options = {"walks": args.walks, "length": args.walk_length, "return_p": args.return_p, "inout_q": args.inout_q}
    return walks_as_corpus(graph, seed=seed, **options)


def report_node_scores(run: Run, model: Any, tokenizer: Any, graph: Graph) -> None:
    """Add the F1 of the nodes' classes to the results of a run, and print it."""
    if graph.labels is None or run.training_args.process_index != 0:
        return
    names = [f" {re.sub(chr(92) + 'W', '_', name)}" for name in graph.nodes]
    ids = [row[-1] for row in tokenizer(names, add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        vectors = model.get_input_embeddings()(torch.tensor(ids, device=model.device)).cpu().numpy()
    scores = score_nodes(vectors, graph.labels)
    write_results(run.folder, read_results(run.folder) | {"node_classification": scores})
    print(
        f"F1 of {len({*graph.labels})} classes, half of the nodes for training: ",
        *(f"{k} {v:.3f}" for k, v in scores.items()),
    )


class WordVectorsTrainer(EduTrainer):
    """`EduTrainer` without autograd: stochastic gradient descent on a few blocks at a time, AdaGrad for GloVe.

    A batch is many such updates, at the learning rate of its step. The logged loss is that of its first blocks.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        dataset = kwargs.get("train_dataset")
        if "counts" not in getattr(dataset, "column_names", ["counts"]):
            kwargs["train_dataset"] = WordRows(dataset)
        super().__init__(*args, **kwargs)
        self.objective = task_of_class(type(self.model).__name__) or ""
        self._check_arguments()
        share = getattr(self.data_collator, "top_share", 0.0) * getattr(self.data_collator, "block_size", 0)
        most = _BLOCKS_AT_ONCE[self.objective]
        self.blocks_at_once = max(1, min(most, int(_REPEATS / share))) if share else most

    def _check_arguments(self) -> None:
        config, training_args = self.model.config, self.args
        unsuited = {
            "hierarchical_softmax": getattr(config, "hierarchical_softmax", False),
            "dropout": config.dropout,
            "num_buckets": config.num_buckets if self.objective == "glove" else 0,
            "gradient_accumulation_steps": training_args.gradient_accumulation_steps > 1,
            "weight_decay": training_args.weight_decay,
            "more than one process": training_args.world_size > 1,
        }
        if self.objective not in ("skip_gram", "cbow", "glove"):
            raise ValueError(f"{type(self.model).__name__} has no sparse updates; use EduTrainer")
        for name, is_set in unsuited.items():
            if is_set:
                raise ValueError(f"sparse updates do not support {name}; use --updates autograd (EduTrainer)")

    def create_optimizer(self, model: Any = None) -> Any:
        """It keeps the learning rate and AdaGrad's sums; the gradients that it is given are none."""
        if self.optimizer is None:
            is_glove, parameters = self.objective == "glove", self.model.parameters()
            options = {"lr": self.args.learning_rate} | ({"initial_accumulator_value": 1.0} if is_glove else {})
            self.optimizer = (torch.optim.Adagrad if is_glove else torch.optim.SGD)(parameters, **options)
        return self.optimizer

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        model.train()
        batch, rate = self._prepare_inputs(inputs), self.optimizer.param_groups[0]["lr"]
        with torch.no_grad():
            loss = model(**{name: values[: self.blocks_at_once] for name, values in batch.items()}).loss
        (self._update_pairs if self.objective == "glove" else self._update_blocks)(model, batch, rate)
        self._is_finite = self._is_finite and bool(torch.isfinite(loss))
        self._check_loss(self.state.global_step + 1)
        return loss

    def _remedy(self) -> str:
        """Nothing clips these updates; `_REPEATS` bounds those of a text, but not those of a graph with few nodes."""
        lower = f"Lower --learning_rate (now {self.args.learning_rate:g})"
        if self.blocks_at_once > 1:
            return lower
        return f"A word or node of so few is in many pairs of one update, and their gradients add up. {lower}"

    def _update_blocks(self, model: Any, batch: dict[str, Any], rate: float) -> None:
        if "negative_ids" not in batch:
            raise ValueError("sparse updates need negatives; give the collator negatives, or use --updates autograd")
        config = model.config
        ids, mask, negative_ids = batch["input_ids"], batch.get("attention_mask"), batch["negative_ids"]
        bands = BandTable(ids.shape[1], config.window_size, ids.device)
        inputs, outputs = InputVectors(model.model.embed_tokens), model.lm_head.weight
        weight = config.num_negatives / negative_ids.shape[1]
        is_whole = [True] * len(ids) if mask is None else mask.all(dim=1).tolist()
        for number, start in enumerate(range(0, len(ids), self.blocks_at_once)):
            rows = slice(start, start + self.blocks_at_once)
            if number % _UPDATES_OF_PARTS == 0:
                if number:
                    inputs.close()
                inputs.open(ids[start : start + _UPDATES_OF_PARTS * self.blocks_at_once])
            is_real = None if mask is None or all(is_whole[rows]) else mask[rows]
            band = bands(batch["window_sizes"][rows], is_real)
            step = (inputs, outputs, ids[rows], band, negative_ids[start], rate, weight)
            if self.objective == "cbow":
                cbow_step(*step, is_real)
            else:
                skip_gram_step(*step)
        inputs.close()

    def _update_pairs(self, model: Any, batch: dict[str, Any], rate: float) -> None:
        state, config = getattr(self.optimizer, "optimizer", self.optimizer).state, model.config
        weights = (model.model.embed_tokens.weight, model.lm_head.weight, model.bias.weight, model.lm_head.bias)
        flat = [(weight.view(len(weight), -1), state[weight]["sum"].view(len(weight), -1)) for weight in weights]
        words, contexts, word_bias, context_bias = (SparseAdagrad(*each) for each in flat)
        counted = batch["labels"] != -100
        ids, labels, counts = (batch[name][counted] for name in ("input_ids", "labels", "counts"))
        for start in range(0, len(ids), _PAIRS_AT_ONCE):
            rows = slice(start, start + _PAIRS_AT_ONCE)
            options = rate, float(config.count_limit), float(config.count_power)
            glove_step((words, contexts, word_bias, context_bias), ids[rows], labels[rows], counts[rows], *options)
