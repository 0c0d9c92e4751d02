"""Look inside a model: arrays first, then pictures, then pages. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_NAMES = {
    "attention.maps": ("AttentionMap", "AttentionMaps", "attention_maps"),
    "attention.files": ("save_attention", "to_bertviz"),
    "attention.page": ("write_page",),
    "attention.pictures": ("draw_attention",),
    "attention.text": ("TextWeights", "text_weights", "write_text_page"),
    "architecture.drawing": ("draw_architecture",),
    "architecture.parts": ("Part", "config_of", "find_parts"),
    "alignment.word_alignment": ("Alignment", "LayerScore", "align", "best_layer", "score_links", "symmetrize"),
    "alignment.pictures": ("draw_alignments", "draw_layers"),
    "alignment.links": ("diagonal_links", "from_pharaoh", "merge_links", "to_pharaoh"),
    "gates.activations": ("GateActivations", "draw_gates", "gate_activations"),
    "gradients.flow": ("GradientFlow", "StateFlow", "gradient_flow"),
    "gradients.callback": ("GradientFlowCallback", "read_gradients"),
    "gradients.exploding": ("ExplodingLesson", "exploding_gradient_lesson"),
    "gradients.truncation": ("TruncationLesson", "truncation_lesson"),
    "gradients.vanishing": ("VanishingLesson", "vanishing_gradient_lesson"),
    "gradients.pictures": ("draw_gradient_flow", "draw_lesson", "draw_training"),
    "layers": ("draw_layer_weights", "layer_weights"),
    "words.positions": ("draw_positions", "position_products", "position_vectors"),
    "words.embeddings": ("Contexts", "Neighbours", "draw_contexts", "in_contexts", "nearest"),
    "words.inputs": ("ModelInput", "byte_pair_merges", "draw_input", "model_input"),
    "words.senses": ("SenseScores", "draw_senses", "senses_of", "score_pairs"),
    "words.surprisal": ("Divergence", "Surprisal", "compare", "draw_divergence", "draw_surprisal", "surprisal"),
    "probes.linear": ("ProbeResult", "draw_probe", "probe", "save_probe"),
    "probes.structural": ("ParseResult", "parse_probe", "save_parse_probe", "untrained_copy"),
    "probes.tasks": ("TaskLayers", "draw_tasks", "probe_tasks", "save_tasks", "senses_as_tags"),
    "probes.texts": ("TextProbe", "TextProbes", "probe_texts"),
    "probes.tree_pictures": ("draw_parse_probe", "draw_trees"),
    "tokens": ("Tokens", "readable_tokens"),
    "word_tokens": ("encode_words",),
    "..checkpoints": ("load_model",),
    "..plotting": ("new_figure", "save_figure"),
    # Import paths from before `experiments` had a package of its own.
    "..experiments.by_length": ("Predictions", "predictions_of", "scores_by_length"),
    "..experiments.pictures": ("draw_by_length", "draw_sweep"),
    "..experiments.sweep": ("Variant", "sweep"),
    "..experiments.published": ("PUBLISHED",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def names_in(subpackage: str) -> dict[str, str]:
    """The public names of a subpackage and the modules that define them."""
    homes = {name: home.split(".") for name, home in _HOMES.items()}
    return {name: home[1] for name, home in homes.items() if home[0] == subpackage}


__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
