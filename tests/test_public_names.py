"""Every name that a package offers can be imported, names of the first release stay, and private names say so."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

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


def module_names(tree: ast.Module):
    """Functions and constants of a module; not what a decorator registers, nor types."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (each.id for each in targets if isinstance(each, ast.Name) and each.id.isupper())


def test_one_rule_for_leading_underscores():
    """With one: used in its own module only. Without: another module, a test, a recipe or a page names it."""
    folders = [ROOT / name for name in ("hf_edu_models", "recipes", "tests", "hub_cards")]
    files = [*ROOT.glob("*.*"), *(file for folder in folders for file in folder.rglob("*.*"))]
    files = [file for file in files if file.suffix in (".py", ".md", ".toml", ".yaml", ".ipynb")]
    words = {file: set(re.findall(r"\w+", file.read_text(encoding="utf-8"))) for file in files}
    problems = []
    for file in sorted((ROOT / "hf_edu_models").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name in module_names(tree):
            if not name.startswith("_") and not any(name in found for other, found in words.items() if other != file):
                problems.append(f"{file.relative_to(ROOT)}: {name} is used here only; call it _{name}")
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) and node.level else ():
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    problems.append(f"{file.relative_to(ROOT)}: {alias.name} of {node.module} is used here, too")
    assert not problems, "\n".join(problems)
