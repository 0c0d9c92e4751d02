"""What the encoder-decoder models share: from labels to decoder inputs, and from decoder features to logits.

Shapes: B batch, S source length, T target length, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .blocks_checks import LABEL_DTYPES, check_and_embed, check_integers, check_labels
from .blocks_generation import SearchedGeneration
from .blocks_losses import head_output, lm_loss_and_logits
from .blocks_recurrent_step import RecurrentStepper
from .blocks_search import Stepper


def _shift_right(labels: Tensor, start_token_id: int | None, pad_token_id: int | None) -> Tensor:
    """The decoder's input in training: the start token, then every label but the last."""
    if start_token_id is None:
        raise ValueError(
            "the decoder has no start token: config.decoder_start_token_id is None; set it to the id that every "
            "target begins with, or give decoder_input_ids"
        )
    if not torch.compiler.is_compiling():
        check_integers("labels", labels, "batch, length", LABEL_DTYPES)
    labels = labels.long()
    start = torch.full_like(labels[:, :1], start_token_id)  # (B, 1)
    inputs = torch.cat([start, labels[:, :-1]], dim=1)  # (B, T)
    # -100 is no token id, and a position that follows it is never counted.
    return inputs.masked_fill(inputs == -100, start_token_id if pad_token_id is None else pad_token_id)


class Seq2SeqMethods:
    """Methods of every encoder-decoder model: labels, and the embeddings of both sides."""

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        return _shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

    def get_input_embeddings(self):
        return self.get_encoder().embed_tokens

    def set_input_embeddings(self, value):
        self.get_encoder().embed_tokens = value

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Resize the embeddings of both sides; the decoder may have its own over the same vocabulary."""
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        decoder, size = self.get_decoder(), embeddings.num_embeddings
        if decoder.embed_tokens is not None:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, size, None, mean_resizing)
            self.tie_weights()
        return embeddings


class Seq2SeqHead(SearchedGeneration):
    """Predicts the target token by token: `self.model` gives features, `self.lm_head` their logits.

    A model may override the hooks at the end.
    """

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs=None,
        past_key_values=None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        teacher_forcing_ratio: float | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            labels: target token ids, -100 to ignore; `decoder_input_ids` are made of them unless given.
            skip_logits: compute the loss without returning logits; the default in training with labels.
            teacher_forcing_ratio: in training, the probability that a position reads the reference's token rather than
                the model's own; default that of the configuration, or 1.
            kwargs: for `self.model`.
        """
        if labels is not None:
            labels = check_labels(labels, None)
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        is_training_step = self.training and labels is not None
        skip_logits = self.training if skip_logits is None else skip_logits
        output_flags = {
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        if encoder_outputs is None:
            encoder = self.get_encoder()
            encoder_outputs = encoder(input_ids, attention_mask, inputs_embeds, **output_flags, return_dict=True)
        if teacher_forcing_ratio is None:
            teacher_forcing_ratio = getattr(self.config, "teacher_forcing_ratio", 1.0)
        if not 0 <= teacher_forcing_ratio <= 1:
            raise ValueError(f"teacher_forcing_ratio must be from 0 to 1, got {teacher_forcing_ratio}")
        if is_training_step and decoder_input_ids is not None and teacher_forcing_ratio < 1:
            decoder_input_ids = self.sample_decoder_inputs(
                decoder_input_ids, encoder_outputs, attention_mask, teacher_forcing_ratio
            )
        outputs = self.model(
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=False if labels is not None else use_cache,
            **output_flags,
            **({"labels": labels} if is_training_step and skip_logits and self.decoder_takes_labels else {}),
            **kwargs,
            return_dict=True,
        )
        smoothing = self.config.label_smoothing if self.training else 0.0
        loss, logits = lm_loss_and_logits(
            outputs.last_hidden_state, self.lm_head, labels, skip_logits, num_items_in_batch, smoothing
        )
        if is_training_step:
            loss = self.penalise(loss, outputs, attention_mask, labels, num_items_in_batch)
        return head_output(Seq2SeqLMOutput, outputs, loss=loss, logits=logits)

    decoder_takes_labels = False  # whether `self.model` uses them to skip padding

    def prepare_inputs_for_generation(self, input_ids, next_sequence_length=None, past_key_values=None, **kwargs):
        """With a cache from the caller, read only the tokens that are not in it."""
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if seen and next_sequence_length is None:
            next_sequence_length = max(1, input_ids.shape[1] - seen)
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length=next_sequence_length, past_key_values=past_key_values, **kwargs
        )

    def make_stepper(self, prompts: Tensor, num_beams: int, max_length: int, inputs: dict) -> Stepper | None:
        """Of a recurrent model: `self.model.steps` carries the states of its decoder."""
        if not hasattr(self.model, "steps"):
            return None
        source = self.model.prepare_source(inputs["encoder_outputs"], inputs.get("attention_mask"))
        steps, decoder = self.model.steps(**source, num_beams=num_beams), self.model.decoder
        return RecurrentStepper(steps, decoder.start(**source), decoder.embed_tokens, self.lm_head, prompts, num_beams)

    def sample_decoder_inputs(
        self, decoder_input_ids: Tensor, encoder_outputs, attention_mask: Tensor | None, teacher_forcing_ratio: float
    ) -> Tensor:
        """The reference with some of its tokens replaced by predictions; of a recurrent decoder step by step."""
        return scheduled_sampling(self, decoder_input_ids, encoder_outputs, attention_mask, teacher_forcing_ratio)


def _draw_reference(decoder_input_ids: Tensor, teacher_forcing_ratio: float) -> Tensor:
    """Where the reference is kept, (B, T): always at the start token."""
    is_reference = torch.rand_like(decoder_input_ids, dtype=torch.float32) < teacher_forcing_ratio  # (B, T)
    is_reference[:, 0] = True
    return is_reference


@torch.no_grad()
def two_pass_sampling(
    head: Seq2SeqHead,
    decoder_input_ids: Tensor,
    encoder_outputs,
    attention_mask: Tensor | None,
    teacher_forcing_ratio: float,
) -> Tensor:
    """Mihaylova & Martins 2019, arXiv:1906.07651: scheduled sampling for decoders that read all positions at once.

    A first pass reads the reference and predicts every position; the second reads a mix of both. So a prediction never
    follows another one. Of the paper's variants, this is the most likely token, without gradients in the first pass.
    """
    is_reference = _draw_reference(decoder_input_ids, teacher_forcing_ratio)
    outputs = head.model(
        attention_mask=attention_mask,
        decoder_input_ids=decoder_input_ids,
        encoder_outputs=encoder_outputs,
        use_cache=False,
        return_dict=True,
    )
    predicted = head.lm_head(outputs.last_hidden_state).argmax(dim=-1)  # (B, T)
    predicted = torch.cat([decoder_input_ids[:, :1], predicted[:, :-1]], dim=1)  # (B, T)
    return torch.where(is_reference, decoder_input_ids, predicted)


@torch.no_grad()
def scheduled_sampling(
    head: Seq2SeqHead,
    decoder_input_ids: Tensor,
    encoder_outputs,
    attention_mask: Tensor | None,
    teacher_forcing_ratio: float,
) -> Tensor:
    """Bengio et al. 2015, arXiv:1506.03099: replace some tokens of the reference by the model's own predictions.

    Each position keeps the reference's token with probability `teacher_forcing_ratio`, and otherwise gets the most
    likely token after what was fed so far. The choice has no gradient, so it is made first and then fed as usual.
    """
    is_reference = _draw_reference(decoder_input_ids, teacher_forcing_ratio)
    fed, cache = [decoder_input_ids[:, :1]], None
    for position in range(1, decoder_input_ids.shape[1]):
        outputs = head.model(
            attention_mask=attention_mask,
            decoder_input_ids=fed[-1],
            encoder_outputs=encoder_outputs,
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
        )
        cache = outputs.past_key_values
        predicted = head.lm_head(outputs.last_hidden_state).argmax(dim=-1)  # (B, 1)
        column = slice(position, position + 1)
        fed.append(torch.where(is_reference[:, column], decoder_input_ids[:, column], predicted))
    return torch.cat(fed, dim=1)


def embed_decoder_inputs(
    embed_tokens,
    config,
    decoder_input_ids: Tensor | None,
    decoder_inputs_embeds: Tensor | None,
    decoder_attention_mask: Tensor | None = None,
    past=0,
) -> Tensor:
    """Embeddings (B, T, E) of checked decoder inputs."""
    if decoder_input_ids is None and decoder_inputs_embeds is None:
        raise ValueError("the decoder has nothing to read; give decoder_input_ids, decoder_inputs_embeds or labels")
    inputs = (decoder_input_ids, decoder_attention_mask, decoder_inputs_embeds)
    return check_and_embed(embed_tokens, config, *inputs, past, prefix="decoder_")
