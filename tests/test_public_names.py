"""Every name that a package offers can be imported, and names of the first release stay."""

import importlib

import pytest

# Scripts from before the packages were regrouped import these.
FIRST_RELEASE = {
    "data": "TASKS load_corpus encode_corpus collator_for train_tokenizer build_nsp_pairs show_corpus normalise",
    "explain": "attention_maps save_attention align probe gradient_flow sweep Variant PUBLISHED load_model new_figure",
    "training": "launch start_run finish_run corpus_for model_for token_ids translation_scores RunStopped",
    "hub": "make_card push_run HubRefusal HubUnreachable PushesWithCard diagnose from_transformers convert_checkpoint",
    "metrics": "METRICS load compute_metrics_for preprocess_logits_for",
}


@pytest.mark.parametrize("package", ["convert", "doctor", "explain.attention", *FIRST_RELEASE])
def test_public_names_can_be_imported(package):
    module = importlib.import_module(f"hf_edu_models.{package}")
    assert set(FIRST_RELEASE.get(package, "").split()) <= set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError, match="has no 'no_such_name'"):
        _ = module.no_such_name
