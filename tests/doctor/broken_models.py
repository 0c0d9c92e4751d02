"""Models with one bug each, and the valid ones that they are derived from."""

import importlib
import os

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GenerationMixin,
    GPT2Config,
    GPT2Model,
    MarianConfig,
    MarianModel,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput
from transformers.modeling_outputs import SequenceClassifierOutput as ClassifierOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


class CausalLMConfig(GPT2Config):
    model_type = "valid_causal_lm"


class ValidCausalLM(PreTrainedModel, GenerationMixin):
    """A causal language model; each broken model overrides one part of it."""

    config_class = CausalLMConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.wte.weight"}

    def __init_subclass__(cls, is_listed=True, **kwargs):
        super().__init_subclass__(**kwargs)
        if is_listed:
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[f"test_{cls.__name__}"] = cls.__name__

    def __init__(self, config):
        super().__init__(config)
        self.add_layers(config)
        self.post_init()

    def add_layers(self, config):
        self.model = GPT2Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        num_items_in_batch=None,
        **kwargs,
    ):
        outputs = self.encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)
        logits = self.predict(outputs.last_hidden_state, attention_mask)
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)

    def encode(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        return self.model(input_ids, past_key_values, attention_mask, position_ids=position_ids, use_cache=use_cache)

    def predict(self, states, attention_mask):
        return self.lm_head(states)

    def loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch)


MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[CausalLMConfig.model_type] = ValidCausalLM.__name__


class XLNetLikeCausalLM(ValidCausalLM):
    """`generate` takes another code path for this name."""


class ReservedNameConfig(CausalLMConfig):
    """Renamed below to the name of a class of transformers."""


ReservedNameConfig.__name__ = "BertConfig"


class ReservedConfigNameCausalLM(ValidCausalLM):
    config_class = ReservedNameConfig


class ReservedTypeConfig(CausalLMConfig):
    model_type = "gpt2"


class ReservedModelTypeCausalLM(ValidCausalLM):
    config_class = ReservedTypeConfig


class TiedKeysListCausalLM(ValidCausalLM):
    _tied_weights_keys = ["lm_head.weight"]


class FailingInitCausalLM(ValidCausalLM):
    def add_layers(self, config):
        raise RuntimeError("no layers")


class ChangingConfig(CausalLMConfig):
    model_type = "changing_config"
    window: int = 4

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.window = self.window * 2


class ChangingConfigCausalLM(ValidCausalLM):
    config_class = ChangingConfig


class NoPostInitCausalLM(ValidCausalLM):
    def __init__(self, config):
        PreTrainedModel.__init__(self, config)
        self.add_layers(config)


class UninitialisedParameterCausalLM(ValidCausalLM):
    """`scale` is initialised in `__init__` only, which has no effect on the meta device."""

    def add_layers(self, config):
        super().add_layers(config)
        self.scale = nn.Parameter(torch.ones(config.n_embd))

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.scale)


class UnseededCausalLM(ValidCausalLM):
    def add_layers(self, config):
        super().add_layers(config)
        self.mix = nn.Linear(config.n_embd, config.n_embd)

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            values = numpy.random.default_rng(int.from_bytes(os.urandom(4), "big")).normal(size=module.weight.shape)
            init.copy_(module.weight, torch.tensor(values, dtype=torch.float32))

    def predict(self, states, attention_mask):
        return self.lm_head(self.mix(states))


class OverwrittenBaseCausalLM(UninitialisedParameterCausalLM):
    """Initialising the head overwrites the position embeddings of the base model."""

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, OverwrittenBaseCausalLM):
            init.ones_(module.scale)
            module.model.wpe.weight.data.zero_()


class LostBufferCausalLM(ValidCausalLM):
    def add_layers(self, config):
        super().add_layers(config)
        self.register_buffer("slopes", torch.linspace(1, 2, config.n_embd), persistent=False)

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.slopes)


class PlainTensorCausalLM(ValidCausalLM):
    def add_layers(self, config):
        super().add_layers(config)
        self.slopes = torch.ones(config.n_embd)

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.slopes)


class UntiedCausalLM(ValidCausalLM):
    """The configuration ties the embeddings, but the class does not declare which."""

    _tied_weights_keys = None


class ManuallyTiedConfig(CausalLMConfig):
    model_type = "manually_tied"
    tie_word_embeddings: bool = False


class ManuallyTiedCausalLM(ValidCausalLM):
    """Tied in `__init__` against the configuration, so that loading does not tie it again."""

    config_class = ManuallyTiedConfig

    def add_layers(self, config):
        super().add_layers(config)
        self.lm_head.weight = self.model.wte.weight


class UndeclaredTieCausalLM(ManuallyTiedCausalLM):
    """Tied in `__init__`, and not declared either."""

    _tied_weights_keys = None


class Gate(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_buffer("offset", torch.ones(size), persistent=False)

    def forward(self, states):
        return states * self.weight + self.offset


class OverwrittenOnLoadCausalLM(ValidCausalLM):
    """Initialising the buffer again overwrites the loaded weight beside it."""

    def add_layers(self, config):
        super().add_layers(config)
        self.gate = Gate(config.n_embd)

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, Gate):
            module.weight.data.fill_(1.0)
            init.ones_(module.offset)

    def predict(self, states, attention_mask):
        return self.lm_head(self.gate(states))


class DropoutInEvalCausalLM(ValidCausalLM):
    def predict(self, states, attention_mask):
        return self.lm_head(F.dropout(states, 0.2))


class LookAheadCausalLM(ValidCausalLM):
    """Sees the next token, unless it is padding."""

    def predict(self, states, attention_mask):
        following = F.pad(states[:, 1:], (0, 0, 0, 1))
        if attention_mask is not None:
            following = following * F.pad(attention_mask[:, -states.shape[1] :], (0, 1))[:, 1:, None]
        return self.lm_head(states + following)


class WrongPositionCausalLM(ValidCausalLM):
    """Position ids start at 0 again in every cached step."""

    def encode(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        if past_key_values is not None and past_key_values.get_seq_length():
            position_ids = torch.zeros_like(input_ids)
        return super().encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class NonReorderingCache(DynamicCache):
    def reorder_cache(self, beam_idx):
        pass


class NonReorderingCausalLM(ValidCausalLM):
    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def encode(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        if past_key_values is None and use_cache is not False:
            past_key_values = NonReorderingCache(config=self.config)
        return super().encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class DroppedMaskCausalLM(ValidCausalLM):
    """`forward` uses the attention mask, but `generate` does not pass it."""

    def prepare_inputs_for_generation(self, *args, **kwargs):
        inputs = super().prepare_inputs_for_generation(*args, **kwargs)
        return {name: value for name, value in inputs.items() if name not in ("attention_mask", "position_ids")}


class LabelsInKwargsCausalLM(ValidCausalLM):
    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None, **kw
    ):
        return super().forward(input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache, **kw)


class LabelSmoothingArgumentCausalLM(ValidCausalLM):
    """Trainer treats `label_smoothing` as a label, by its name."""

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        label_smoothing=None,
        **kwargs,
    ):
        arguments = (input_ids, attention_mask, position_ids, past_key_values, labels, use_cache)
        return super().forward(*arguments, **kwargs)


class GatheredCacheConfig(CausalLMConfig):
    model_type = "gathered_cache"
    keys_to_ignore_at_inference = []


class GatheredCacheCausalLM(ValidCausalLM):
    config_class = GatheredCacheConfig


class UnshiftedCausalLM(ValidCausalLM):
    def loss(self, logits, labels, num_items_in_batch):
        return fixed_cross_entropy(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)


class ShiftedTwiceCausalLM(ValidCausalLM):
    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, F.pad(labels[:, 1:], (0, 1), value=-100), num_items_in_batch)


class CountedPaddingCausalLM(ValidCausalLM):
    """Labels of -100 become the padding token, and are not ignored."""

    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, labels.clamp(min=0), num_items_in_batch)


class MeanLossCausalLM(ValidCausalLM):
    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, labels, None)


class UnusedLayerCausalLM(ValidCausalLM):
    def add_layers(self, config):
        super().add_layers(config)
        self.spare = nn.Linear(config.n_embd, config.n_embd)


class DetachedCausalLM(ValidCausalLM):
    def predict(self, states, attention_mask):
        return self.lm_head(states.detach())


class HiddenImportCausalLM(ValidCausalLM):
    """Imports its own package in a way that no import statement shows."""

    def predict(self, states, attention_mask):
        module = importlib.import_module("broken_models")
        return module.ValidCausalLM.predict(self, states, attention_mask)


class MaskedLMConfig(BertConfig):
    model_type = "valid_masked_lm"


class ValidMaskedLM(PreTrainedModel):
    """A masked language model."""

    config_class = MaskedLMConfig
    base_model_prefix = "model"
    output_class = MaskedLMOutput

    def __init__(self, config):
        super().__init__(config)
        self.model = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size, self.count_outputs(config))
        self.post_init()

    def count_outputs(self, config):
        return config.vocab_size

    def forward(self, input_ids=None, attention_mask=None, labels=None, num_items_in_batch=None, **kwargs):
        logits = self.head(self.encode(input_ids, attention_mask))
        loss = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.flatten(0, -2), labels.flatten(), num_items_in_batch)
        return self.output_class(loss=loss, logits=logits)

    def encode(self, input_ids, attention_mask):
        return self.model(input_ids, attention_mask).last_hidden_state


class IgnoredMaskMaskedLM(ValidMaskedLM):
    def encode(self, input_ids, attention_mask):
        return super().encode(input_ids, None)


class ValidClassifier(ValidMaskedLM):
    """Classifies the mean of the hidden states of all real tokens."""

    output_class = ClassifierOutput

    def count_outputs(self, config):
        return config.num_labels

    def encode(self, input_ids, attention_mask):
        states = super().encode(input_ids, attention_mask)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class PaddingInMeanClassifier(ValidClassifier):
    """The mean includes padding."""

    def encode(self, input_ids, attention_mask):
        return ValidMaskedLM.encode(self, input_ids, attention_mask).mean(dim=1)


class Seq2SeqConfig(MarianConfig):
    model_type = "valid_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values", "encoder_last_hidden_state"]


class ValidSeq2SeqLM(PreTrainedModel, GenerationMixin):
    config_class = Seq2SeqConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = MarianModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def get_encoder(self, modality=None):
        return self.model.get_encoder()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        encoder_outputs=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        num_items_in_batch=None,
        **kwargs,
    ):
        if labels is not None and decoder_input_ids is None:
            decoder_input_ids = self.decoder_inputs(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
        )

    def decoder_inputs(self, labels):
        start = torch.full_like(labels[:, :1], self.config.decoder_start_token_id)
        return torch.cat([start, labels[:, :-1]], dim=1).clamp(min=0)

    def loss(self, logits, labels, num_items_in_batch):
        return fixed_cross_entropy(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)


class ShiftedTwiceSeq2SeqLM(ValidSeq2SeqLM):
    """`loss_function` is the causal loss, which shifts the labels."""

    def loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch)


class UnshiftedDecoderInputSeq2SeqLM(ValidSeq2SeqLM):
    """The decoder input is the token to predict."""

    def decoder_inputs(self, labels):
        return labels.clamp(min=0)


class GatheredEncoderConfig(Seq2SeqConfig):
    model_type = "gathered_encoder"
    keys_to_ignore_at_inference = ["past_key_values"]


class GatheredEncoderSeq2SeqLM(ValidSeq2SeqLM):
    config_class = GatheredEncoderConfig


class StrictSignatureCausalLM(ValidCausalLM):
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        num_items_in_batch=None,
        return_dict=None,
    ):
        return super().forward(
            input_ids, attention_mask, position_ids, past_key_values, labels, use_cache, num_items_in_batch
        )


class UnlistedCausalLM(ValidCausalLM, is_listed=False):
    """Trainer does not know that it is a causal language model."""


class LeakingPackedCausalLM(ValidCausalLM):
    """A mask of ones, from which transformers concludes that a row is one document."""

    def encode(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        if attention_mask is None and past_key_values is None:
            attention_mask = torch.ones_like(input_ids)
        return super().encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class FlatMaskCausalLM(ValidCausalLM):
    """Checks a mask as if it had one row for each text; that of a static cache has four dimensions."""

    def encode(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        for length in [] if attention_mask is None else attention_mask.sum(dim=-1):
            if not int(length):
                raise ValueError("a text has no token")
        return super().encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class Residual(GradientCheckpointingLayer):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, size)

    def forward(self, states):
        return states + self.linear(self.norm(states))


class ValidLayersCausalLM(ValidCausalLM):
    """With a layer of its own that can be checkpointed and sharded."""

    supports_gradient_checkpointing = True
    _no_split_modules = ["Residual"]

    def add_layers(self, config):
        super().add_layers(config)
        self.residual = Residual(config.n_embd)

    def predict(self, states, attention_mask):
        return self.lm_head(self.residual(states))


class KeywordLayerCausalLM(ValidLayersCausalLM):
    """Reentrant checkpointing sees tensors in positional arguments only."""

    def predict(self, states, attention_mask):
        return self.lm_head(self.residual(states=states))


class OutsideWeightCausalLM(ValidLayersCausalLM):
    """Reads the weight of a layer outside its forward."""

    def predict(self, states, attention_mask):
        return self.lm_head(self.residual(states * self.residual.norm.weight))


class BypassedHeadCausalLM(ValidCausalLM):
    """A fast path for training that reads the weight of the output layer."""

    def predict(self, states, attention_mask):
        return F.linear(states, self.lm_head.weight) if self.training else self.lm_head(states)


class HeadsLinear(nn.Linear):
    """A linear layer that takes heads and sizes apart, which a plain one does not."""

    def forward(self, states):
        return super().forward(states.flatten(-2))


class HeadsLinearCausalLM(ValidCausalLM):
    def add_layers(self, config):
        super().add_layers(config)
        self.mix = HeadsLinear(config.n_embd, config.n_embd)

    def predict(self, states, attention_mask):
        return self.lm_head(self.mix(states.unflatten(-1, (2, -1))))


class FrozenBatchCausalLM(ValidCausalLM):
    """A number instead of a size: an exported model has it written in."""

    def predict(self, states, attention_mask):
        return self.lm_head(states * states.new_ones(int(torch.tensor(len(states))), 1, 1))


class ForeignKernelConfig(CausalLMConfig):
    model_type = "foreign_kernel"
    mlp_kernel: str = "somebody/fast-mlp:FastMLP"


class ForeignKernelCausalLM(ValidCausalLM):
    config_class = ForeignKernelConfig
