"""What the encoder-decoder rungs share: from labels to decoder inputs, and from decoder features to words.

Shapes: B batch, S source length, T target length, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .blocks_losses import predict_words


def shift_right(labels: Tensor, start_token_id: int | None, pad_token_id: int | None) -> Tensor:
    """What the decoder reads while it learns to say `labels`: the start token, then every label but the last."""
    if start_token_id is None:
        raise ValueError(
            "the decoder has no start token: config.decoder_start_token_id is None; set it to the id that every "
            "target begins with, or give decoder_input_ids"
        )
    start = torch.full_like(labels[:, :1], start_token_id)  # (B, 1)
    inputs = torch.cat([start, labels[:, :-1]], dim=1)  # (B, T)
    # -100 is no word; what stands there is never counted.
    return inputs.masked_fill(inputs == -100, start_token_id if pad_token_id is None else pad_token_id)


class Seq2SeqMethods:
    """Methods of every encoder-decoder `PreTrainedModel`."""

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        return shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

    def get_input_embeddings(self):
        return self.get_encoder().embed_tokens

    def set_input_embeddings(self, value):
        self.get_encoder().embed_tokens = value

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Resize the vectors of both sides; the target may have a table of its own over the same vocabulary."""
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        decoder, size = self.get_decoder(), embeddings.num_embeddings
        if decoder.embed_tokens is not None:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, size, None, mean_resizing)
            self.tie_weights()
        return embeddings


class Seq2SeqHead:
    """The words of the target, one softmax for each; `self.model` gives the features, `self.lm_head` the logits."""

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
    ) -> Seq2SeqLMOutput:
        """
        Args:
            labels: the target's words, -100 where none is counted; without `decoder_input_ids` they also make those.
            skip_logits: leave out the logits; by default in training with labels, where only the loss is needed.
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        is_learning = self.training and labels is not None
        skip_logits = self.training if skip_logits is None else skip_logits
        asked = {
            "output_attentions": True if is_learning and self.penalises_attention() else output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        if encoder_outputs is None:
            encoder = self.get_encoder()
            encoder_outputs = encoder(input_ids, attention_mask, inputs_embeds, **asked, return_dict=True)
        if is_learning and decoder_input_ids is not None:
            decoder_input_ids = self.words_to_feed(decoder_input_ids, encoder_outputs, attention_mask)
        outputs = self.model(
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=False if labels is not None else use_cache,
            **asked,
            **({"labels": labels} if is_learning and skip_logits and self.decoder_takes_labels else {}),
            return_dict=True,
        )
        smoothing = self.config.label_smoothing if self.training else 0.0
        loss, logits = predict_words(
            outputs.last_hidden_state, self.lm_head, labels, skip_logits, num_items_in_batch, smoothing
        )
        if is_learning and self.penalises_attention():
            loss = loss + self.attention_penalty(outputs, attention_mask)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    decoder_takes_labels = False  # whether `self.model` wants them, to leave out padding

    def penalises_attention(self) -> bool:
        """Whether the loss has a term for how the model attends."""
        return False

    def prepare_inputs_for_generation(self, input_ids, next_sequence_length=None, past_key_values=None, **kwargs):
        """With a cache that the caller gave, read only the words that it has not seen."""
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if seen and next_sequence_length is None:
            next_sequence_length = max(1, input_ids.shape[1] - seen)
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length=next_sequence_length, past_key_values=past_key_values, **kwargs
        )

    def words_to_feed(self, decoder_input_ids: Tensor, encoder_outputs, attention_mask: Tensor | None) -> Tensor:
        """What the decoder reads in training: the reference (teacher forcing)."""
        return decoder_input_ids


@torch.no_grad()
def mix_own_words(
    head: Seq2SeqHead, decoder_input_ids: Tensor, encoder_outputs, attention_mask: Tensor | None, share: float
) -> Tensor:
    """Scheduled sampling (Bengio et al. 2015, arXiv:1506.03099): replace words of the reference by the model's own.

    Each place keeps the reference's word with probability `share`; otherwise it gets the most likely word after what
    was fed so far. No gradient passes through a choice of words, so the mixture is made first and then fed as usual.
    """
    is_reference = torch.rand(decoder_input_ids.shape, device=decoder_input_ids.device) < share  # (B, T)
    is_reference[:, 0] = True
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
        own = head.lm_head(outputs.last_hidden_state).argmax(dim=-1)  # (B, 1)
        place = slice(position, position + 1)
        fed.append(torch.where(is_reference[:, place], decoder_input_ids[:, place], own))
    return torch.cat(fed, dim=1)


def decoder_words(decoder, decoder_input_ids: Tensor | None, decoder_inputs_embeds: Tensor | None) -> Tensor:
    if decoder_inputs_embeds is not None:
        return decoder_inputs_embeds
    if decoder_input_ids is None:
        raise ValueError("the decoder has nothing to read; give decoder_input_ids, decoder_inputs_embeds or labels")
    return decoder.embed_tokens(decoder_input_ids)
