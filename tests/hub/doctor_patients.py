"""Models with one fault each, and the healthy ones that they are made from."""

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
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput
from transformers.modeling_outputs import SequenceClassifierOutput as ClassifierOutput


class SpeakerConfig(GPT2Config):
    model_type = "patient_speaker"


class HealthySpeaker(PreTrainedModel, GenerationMixin):
    """A language model whose parts the sick ones replace."""

    config_class = SpeakerConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.wte.weight"}

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
        outputs = self.read(input_ids, attention_mask, position_ids, past_key_values, use_cache)
        logits = self.predict(outputs.last_hidden_state, attention_mask)
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)

    def read(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        return self.model(input_ids, past_key_values, attention_mask, position_ids=position_ids, use_cache=use_cache)

    def predict(self, states, attention_mask):
        return self.lm_head(states)

    def loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch)


class XLNetLikeSpeaker(HealthySpeaker):
    """`generate` knows the word in its name."""


class BertConfigOfMine(SpeakerConfig):
    """Takes another's name below."""


BertConfigOfMine.__name__ = "BertConfig"


class NamesakeSpeaker(HealthySpeaker):
    config_class = BertConfigOfMine


class BorrowedTypeConfig(SpeakerConfig):
    model_type = "gpt2"


class BorrowedTypeSpeaker(HealthySpeaker):
    config_class = BorrowedTypeConfig


class OldTieSpeaker(HealthySpeaker):
    _tied_weights_keys = ["lm_head.weight"]


class UnbuildableSpeaker(HealthySpeaker):
    def add_layers(self, config):
        raise RuntimeError("no layers today")


class GrowingConfig(SpeakerConfig):
    model_type = "patient_growing"
    window: int = 4

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.window = self.window * 2


class GrowingConfigSpeaker(HealthySpeaker):
    config_class = GrowingConfig


class NoPostInitSpeaker(HealthySpeaker):
    def __init__(self, config):
        PreTrainedModel.__init__(self, config)
        self.add_layers(config)


class RawParameterSpeaker(HealthySpeaker):
    """`scale` is set where it is made, which a model built on the meta device forgets."""

    def add_layers(self, config):
        super().add_layers(config)
        self.scale = nn.Parameter(torch.ones(config.n_embd))

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.scale)


class UnseededSpeaker(HealthySpeaker):
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


class OverwritingHeadSpeaker(RawParameterSpeaker):
    """Starting the head, it starts the body's positions over, too."""

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, OverwritingHeadSpeaker):
            init.ones_(module.scale)
            module.model.wpe.weight.data.zero_()


class LostBufferSpeaker(HealthySpeaker):
    def add_layers(self, config):
        super().add_layers(config)
        self.register_buffer("slopes", torch.linspace(1, 2, config.n_embd), persistent=False)

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.slopes)


class PlainTensorSpeaker(HealthySpeaker):
    def add_layers(self, config):
        super().add_layers(config)
        self.slopes = torch.ones(config.n_embd)

    def predict(self, states, attention_mask):
        return self.lm_head(states * self.slopes)


class UntiedSpeaker(HealthySpeaker):
    """The configuration says tied, the class does not say what."""

    _tied_weights_keys = None


class HandTiedConfig(SpeakerConfig):
    model_type = "patient_hand_tied"
    tie_word_embeddings: bool = False


class HandTiedSpeaker(HealthySpeaker):
    """Tied by hand where the configuration says it is not, so loading does not tie it again."""

    config_class = HandTiedConfig

    def add_layers(self, config):
        super().add_layers(config)
        self.lm_head.weight = self.model.wte.weight


class UndeclaredTieSpeaker(HandTiedSpeaker):
    """Nor does the class say what is tied."""

    _tied_weights_keys = None


class Gate(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_buffer("offset", torch.ones(size), persistent=False)

    def forward(self, states):
        return states * self.weight + self.offset


class ForgetfulSpeaker(HealthySpeaker):
    """Rebuilding the gate's buffer, it starts the weight over that was just loaded."""

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


class RestlessSpeaker(HealthySpeaker):
    def predict(self, states, attention_mask):
        return self.lm_head(F.dropout(states, 0.2))


class ProphetSpeaker(HealthySpeaker):
    """Sees the next word, unless it is padding."""

    def predict(self, states, attention_mask):
        following = F.pad(states[:, 1:], (0, 0, 0, 1))
        if attention_mask is not None:
            following = following * F.pad(attention_mask[:, -states.shape[1] :], (0, 1))[:, 1:, None]
        return self.lm_head(states + following)


class LostPlaceSpeaker(HealthySpeaker):
    """Counts positions from nothing after every cached word."""

    def read(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        if past_key_values is not None and past_key_values.get_seq_length():
            position_ids = torch.zeros_like(input_ids)
        return super().read(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class StuckCache(DynamicCache):
    def reorder_cache(self, beam_idx):
        pass


class StuckBeamSpeaker(HealthySpeaker):
    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def read(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        if past_key_values is None and use_cache is not False:
            past_key_values = StuckCache(config=self.config)
        return super().read(input_ids, attention_mask, position_ids, past_key_values, use_cache)


class MaskDroppingSpeaker(HealthySpeaker):
    """`forward` knows about padding, `generate` does not tell it."""

    def prepare_inputs_for_generation(self, *args, **kwargs):
        inputs = super().prepare_inputs_for_generation(*args, **kwargs)
        return {name: value for name, value in inputs.items() if name not in ("attention_mask", "position_ids")}


class HiddenLabelsSpeaker(HealthySpeaker):
    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None, **kw
    ):
        return super().forward(input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache, **kw)


class SmoothedSpeaker(HealthySpeaker):
    """Trainer takes `label_smoothing` for a label."""

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
        given = (input_ids, attention_mask, position_ids, past_key_values, labels, use_cache)
        return super().forward(*given, **kwargs)


class GatheringConfig(SpeakerConfig):
    model_type = "patient_gathering"
    keys_to_ignore_at_inference = []


class GatheringSpeaker(HealthySpeaker):
    config_class = GatheringConfig


class SelfPredictingSpeaker(HealthySpeaker):
    def loss(self, logits, labels, num_items_in_batch):
        return fixed_cross_entropy(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)


class TwiceShiftedSpeaker(HealthySpeaker):
    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, F.pad(labels[:, 1:], (0, 1), value=-100), num_items_in_batch)


class CountingPaddingSpeaker(HealthySpeaker):
    """Labels of -100 become the padding word, and count."""

    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, labels.clamp(min=0), num_items_in_batch)


class PlainMeanSpeaker(HealthySpeaker):
    def loss(self, logits, labels, num_items_in_batch):
        return super().loss(logits, labels, None)


class UnusedLayerSpeaker(HealthySpeaker):
    def add_layers(self, config):
        super().add_layers(config)
        self.spare = nn.Linear(config.n_embd, config.n_embd)


class DetachedSpeaker(HealthySpeaker):
    def predict(self, states, attention_mask):
        return self.lm_head(states.detach())


class SecretiveSpeaker(HealthySpeaker):
    """Asks for its own package in a way that no reader of imports sees."""

    def predict(self, states, attention_mask):
        package = importlib.import_module("doctor_patients")
        return package.HealthySpeaker.predict(self, states, attention_mask)


class ReaderConfig(BertConfig):
    model_type = "patient_reader"


class HealthyReader(PreTrainedModel):
    """A masked language model."""

    config_class = ReaderConfig
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
        logits = self.head(self.read(input_ids, attention_mask))
        loss = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.flatten(0, -2), labels.flatten(), num_items_in_batch)
        return self.output_class(loss=loss, logits=logits)

    def read(self, input_ids, attention_mask):
        return self.model(input_ids, attention_mask).last_hidden_state


class MasklessReader(HealthyReader):
    def read(self, input_ids, attention_mask):
        return super().read(input_ids, None)


class HealthyJudge(HealthyReader):
    """A classifier of whole texts, by the mean of all real states."""

    output_class = ClassifierOutput

    def count_outputs(self, config):
        return config.num_labels

    def read(self, input_ids, attention_mask):
        states = super().read(input_ids, attention_mask)
        keep = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return (states * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


class PaddingJudge(HealthyJudge):
    """The mean is over padding, too."""

    def read(self, input_ids, attention_mask):
        return HealthyReader.read(self, input_ids, attention_mask).mean(dim=1)


class TranslatorConfig(MarianConfig):
    model_type = "patient_translator"
    keys_to_ignore_at_inference = ["past_key_values", "encoder_last_hidden_state"]


class HealthyTranslator(PreTrainedModel, GenerationMixin):
    config_class = TranslatorConfig
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


class TwiceShiftedTranslator(HealthyTranslator):
    """`loss_function` is the causal one, whatever the class's name."""

    def loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch)


class CheatingTranslator(HealthyTranslator):
    """The decoder reads the very word that it is to say."""

    def decoder_inputs(self, labels):
        return labels.clamp(min=0)


class HoardingConfig(TranslatorConfig):
    model_type = "patient_hoarding"
    keys_to_ignore_at_inference = ["past_key_values"]


class HoardingTranslator(HealthyTranslator):
    config_class = HoardingConfig
