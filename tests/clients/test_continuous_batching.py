"""`generate_batch`, the continuous batching of transformers, gives the tokens of greedy `generate()`."""

import pytest
import torch
from tiny import CASES, GENERATORS, VOCABULARY, by_name, random_ids
from transformers import ContinuousBatchingConfig, GenerationConfig, GPT2Config, GPT2LMHeadModel

PROMPTS = [random_ids(length, seed=length).tolist() for length in (5, 3, 6, 2)]
SMALL = {"num_blocks": 16, "block_size": 32, "max_batch_tokens": 64}


def gpt2(form):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 1, "eos_token_id": 2}
    implementation = "eager" if form == "eager" else "sdpa"
    model = GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation=implementation)).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("build", [lambda form: CASES["gpt"].build(form=form), gpt2], ids=["edu_gpt", "gpt2"])
def test_generate_batch_gives_the_greedy_tokens(build, form):
    model = build(form)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": 2}
    found = model.generate_batch(PROMPTS, GenerationConfig(**options), ContinuousBatchingConfig(**SMALL))
    assert len(found) == len(PROMPTS)
    for prompt, output in zip(PROMPTS, found.values(), strict=True):
        assert output.error is None
        assert output.prompt_ids == prompt
        expected = model.generate(torch.tensor([prompt]), **options)[0, len(prompt) :]
        assert output.generated_tokens == expected.tolist()


OTHERS = [case for case in GENERATORS if "gpt" not in case.name]


@pytest.mark.parametrize("case", **by_name(OTHERS))
def test_other_models_raise_an_error(case):
    with pytest.raises(ValueError, match=f"{case.head} cannot generate with continuous batching"):
        case.build().generate_batch(PROMPTS, GenerationConfig(max_new_tokens=8))


def test_logits_of_chosen_positions():
    """Continuous batching asks for logits by position."""
    ids, positions = random_ids(2, 7), torch.tensor([1, 4, 6])
    for case in (CASES["gpt"], CASES["recurrent"], CASES["feedforward"]):
        model = case.build()
        assert torch.equal(model(ids, logits_to_keep=positions).logits, model(ids).logits[:, positions])
        assert torch.equal(model(ids, logits_to_keep=2).logits, model(ids).logits[:, -2:])
