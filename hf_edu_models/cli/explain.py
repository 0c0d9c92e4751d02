"""`hf-edu explain`: the group of verbs that look inside a model."""

import typer

from . import (
    explain_align,
    explain_analogies,
    explain_attention,
    explain_gates,
    explain_gradients,
    explain_input,
    explain_layers,
    explain_parse,
    explain_probe,
    explain_senses,
    explain_surprisal,
    explain_text,
    explain_words,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def explain() -> None:
    """Look inside a model: attention, alignment, gradients, embeddings and probes."""


for verb in (
    explain_attention.attention,
    explain_text.text,
    explain_align.align,
    explain_gradients.gradients,
    explain_gates.gates,
    explain_layers.layers,
    explain_words.positions,
    explain_words.neighbours,
    explain_words.contexts,
    explain_analogies.analogies,
    explain_analogies.draw_map,
    explain_probe.probe,
    explain_parse.parse,
    explain_senses.senses,
    explain_surprisal.surprisal,
    explain_surprisal.compare,
):
    app.command("map" if verb is explain_analogies.draw_map else None)(verb)
app.command("input")(explain_input.explain_input)
