"""What the notebooks of `recipes/lessons` share: show code, architectures and figures, and check an exercise.

`check` computes what is right with the models of the ladder, so that no answer stands here as a number.
"""

from __future__ import annotations

import inspect
import io
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def source_of(code: Any) -> str:
    """The source of a class or function as it is installed, below the name of its file."""
    path = f"{code.__module__.replace('.', '/')}.py"
    return f"# {path}: {code.__qualname__}\n{textwrap.dedent(inspect.getsource(code)).rstrip()}"


def show_code(*codes: Any) -> None:
    """Show the source of classes or functions; in Jupyter with colours."""
    text = "\n\n".join(map(source_of, codes))
    if _in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(f"```python\n{text}\n```"))
    else:
        print(text)


def show_figure(figure: Any, dpi: int = 80) -> None:
    """Show a figure in Jupyter, as a small PNG; elsewhere render it and print its size."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    if _in_notebook():
        from IPython.display import Image, display

        display(Image(content.getvalue()))
    else:
        print(f"figure of {len(content.getvalue())} bytes")


def show_architecture(rung: str, head: str | None = None, **settings: Any) -> None:
    """Draw the architecture of a rung; `settings` are fields of its configuration."""
    from .explain import config_of, draw_architecture, find_parts

    config, saved_head = config_of(rung, settings)
    root = find_parts(config, head or saved_head)
    show_figure(draw_architecture(root, f"{root.kind}: {rung}"))


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this: a script or plain IPython shows no pictures."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


def check(exercise: str, answer: Any) -> bool | None:
    """Print whether the answer to an exercise is right, with a hint if it is not; None if there is no answer yet."""
    if exercise not in EXERCISES:
        raise ValueError(f"there is no exercise {exercise!r}; choose one of {', '.join(EXERCISES)}")
    if answer is ...:
        print(f"{exercise}: replace the ... by your answer")
        return None
    is_correct, hint = EXERCISES[exercise]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = bool(is_correct(answer))
    except Exception as error:  # the answer is the reader's code, and may raise anything
        print(f"{exercise}: wrong, it raises {type(error).__name__}: {error}")
        return False
    print(f"{exercise}: right" if found else f"{exercise}: wrong. {hint}")
    return found


def _same(answer: Any, expected: Any) -> bool:
    """Whether tensors, numbers or tuples of them are the same; a tensor of the wrong shape is not."""
    if isinstance(expected, (tuple, list)):
        return len(answer) == len(expected) and all(map(_same, answer, expected))
    answer, expected = (torch.as_tensor(each, dtype=torch.float32) for each in (answer, expected))
    return answer.shape == expected.shape and torch.allclose(answer, expected, rtol=1e-4, atol=1e-5)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _kernel_model(width: float, inputs: Tensor, labels: Tensor) -> Any:
    from .models.configuration_kernel import EduKernelConfig
    from .models.modeling_kernel import EduKernelForRegression

    model = EduKernelForRegression(EduKernelConfig(kernel="gaussian", width=width, input_size=inputs.shape[1])).eval()
    model.remember(inputs, labels)
    return model


@torch.no_grad()
def _kernel_predict(predict: Callable) -> bool:
    keys, values, queries = torch.randn(12), torch.randn(12), torch.randn(3)
    for width in (0.3, 1.0):
        expected = _kernel_model(width, keys[:, None], values)(queries[:, None]).logits[:, 0]
        if not _same(
            torch.stack([torch.as_tensor(predict(query, keys, values, width)) for query in queries]), expected
        ):
            return False
    return True


@torch.no_grad()
def _kernel_limit(answer: str) -> bool:
    keys, values, query = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([5.0, 7.0, 12.0]), torch.tensor([[2.6]])
    limits = {"nearest": values[(keys - query[0]).abs().argmin()], "mean": values.mean(), "zero": torch.zeros(())}
    found = _kernel_model(1e-2, keys[:, None], values)(query).logits[0, 0]
    return answer in limits and _same(limits[answer], found)


def leave_one_out(width: float, rows: int = 50, seed: int = 0) -> float:
    """The mean squared error of a Gaussian kernel on the corpus `curve`, each pair predicted from the others."""
    from .data.builtin import curves

    split = curves.generate({"train": rows}, seed)["train"]
    inputs, labels = torch.tensor(split["features"]), torch.tensor(split["value"])
    with torch.no_grad():
        return _kernel_model(width, inputs, labels)(inputs, labels=labels, memory_ids=torch.arange(rows)).loss.item()


def _kernel_width(width: float) -> bool:
    return leave_one_out(width) <= 1.01 * min(leave_one_out(each / 100) for each in range(5, 200))


def _window_layer(embedding_size: int, window_size: int, hidden_size: int) -> Any:
    from .models.modeling_feedforward import WindowLayer

    return WindowLayer(embedding_size, window_size, hidden_size, direct_connections=False)


def _window_parameters(count: Callable) -> bool:
    return all(count(*sizes) == _count(_window_layer(*sizes)) for sizes in ((30, 4, 50), (7, 3, 5)))


@torch.no_grad()
def _window_features(features: Callable) -> bool:
    layer, window = _window_layer(5, 3, 4), torch.randn(3, 5)
    return _same(features(window, layer.hidden_proj.weight, layer.hidden_proj.bias), layer(window[None])[0, 0])


def _perplexity(perplexity: Callable) -> bool:
    from .models.modeling_feedforward import EduFeedForwardConfig, EduFeedForwardForCausalLM

    model = EduFeedForwardForCausalLM(EduFeedForwardConfig(vocab_size=20, window_size=2, hidden_size=8)).eval()
    with torch.no_grad():
        input_ids = torch.randint(3, 20, (1, 9))
        outputs = model(input_ids, labels=input_ids)
    found = outputs.logits[:, :-1].softmax(-1).gather(-1, input_ids[:, 1:, None]).flatten()
    return _same(perplexity(found), outputs.loss.exp())


def _cell(name: str, input_size: int, hidden_size: int) -> Any:
    from .models.blocks_recurrent import CELLS

    return CELLS[name](input_size, hidden_size)


@torch.no_grad()
def _rnn_step(step: Callable) -> bool:
    cell, inputs, hidden = _cell("rnn", 3, 4), torch.randn(3), torch.randn(4)
    bias = cell.input_bias + cell.state_bias
    return _same(step(inputs, hidden, cell.input_weight, cell.state_weight, bias), cell(inputs, (hidden,))[0])


def _rnn_jacobian(jacobian: Callable) -> bool:
    cell, inputs, hidden = _cell("rnn", 3, 4), torch.randn(3), torch.randn(4)
    expected = torch.autograd.functional.jacobian(lambda state: cell(inputs, (state,))[0], hidden)
    new_hidden, weight = cell(inputs, (hidden,))[0].detach(), cell.state_weight.detach()
    return _same(jacobian(new_hidden, weight), expected)


def _rnn_steps(steps: int) -> bool:
    gradients = torch.tensor(0.9, dtype=torch.float64) ** torch.arange(1000)
    return steps == int((gradients < 1e-3).nonzero()[0])


@torch.no_grad()
def _lstm_step(step: Callable) -> bool:
    cell, inputs, state = _cell("lstm", 3, 4), torch.randn(2, 3), (torch.randn(2, 4), torch.randn(2, 4))
    return _same(step(cell.from_input(inputs) + cell.from_state(state[0]), state[1]), cell(inputs, state))


def _lstm_bias(bias: int) -> bool:
    kept = torch.sigmoid(torch.arange(20, dtype=torch.float64)) ** 1000
    return bias == int((kept >= 0.5).nonzero()[0])


def _lstm_parameters(count: Callable) -> bool:
    return all(count(*sizes) == _count(_cell("lstm", *sizes)) for sizes in ((30, 50), (7, 5)))


@torch.no_grad()
def _additive_score(score: Callable) -> bool:
    from .models.blocks_attention import AdditiveScore

    layer, query, annotations = AdditiveScore(4, 6, 5), torch.randn(4), torch.randn(7, 6)
    weights = layer.query_weight, layer.key_weight, layer.score_vector
    return _same(score(query, annotations, *weights), layer(query[None], layer.prepare(annotations[None]))[0])


@torch.no_grad()
def _context(context: Callable) -> bool:
    from .models.blocks_attention import NORMALIZERS, attend

    scores, annotations = torch.randn(2, 7), torch.randn(2, 7, 6)
    expected, _ = attend(scores, annotations, None, NORMALIZERS["softmax"]())
    return all(_same(context(scores[row], annotations[row]), expected[row]) for row in range(2))


def _sharper_weights(answer: str) -> bool:
    """Whether a softmax of larger scores has the lower entropy."""
    scores = torch.randn(25)
    small, large = (torch.special.entr((factor * scores).softmax(-1)).sum() for factor in (1, 10))
    return answer == ("sharper" if large < small else "flatter")


# By exercise: whether an answer is right, and a hint for one that is not.
EXERCISES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kernel 1": (
        _kernel_predict,
        "Weights are softmax(-(query - keys)^2 / (2 width^2)); the prediction is their sum of values.",
    ),
    "kernel 2": (_kernel_limit, "With a small width, which key gets nearly all of the weight?"),
    "kernel 3": (_kernel_width, "Compute leave_one_out(width) for widths from 0.05 to 2; a smaller error exists."),
    "feedforward 1": (
        _window_parameters,
        "H has hidden_size rows, one column for each number of the window; d is a vector.",
    ),
    "feedforward 2": (_window_features, "Flatten the window to one vector x, then tanh(weight @ x + bias)."),
    "feedforward 3": (_perplexity, "The exponential of the mean of -log p."),
    "recurrent 1": (_rnn_step, "tanh(W x + U h + b)"),
    "recurrent 2": (_rnn_jacobian, "The derivative of tanh(a) is 1 - tanh(a)^2; row i of U is multiplied by it at i."),
    "recurrent 3": (_rnn_steps, "Solve 0.9 ** n < 0.001 for the smallest whole n."),
    "lstm 1": (_lstm_step, "The four parts are input gate, forget gate, candidate, output gate, in this order."),
    "lstm 2": (_lstm_bias, "Find the smallest whole b with sigmoid(b) ** 1000 >= 0.5."),
    "lstm 3": (_lstm_parameters, "Four gates, each with W, U and two biases."),
    "bahdanau 1": (_additive_score, "v . tanh(W s + U h_j) for each row h_j of the annotations."),
    "bahdanau 2": (_context, "Softmax over the scores, then the mean of the annotations with these weights."),
    "bahdanau 3": (_sharper_weights, "Compute the softmax of [1, 2] and of [10, 20]."),
}
