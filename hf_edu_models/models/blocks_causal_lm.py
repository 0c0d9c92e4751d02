"""The language modelling head of the causal models."""

from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from .blocks_checks import check_logits_to_keep
from .blocks_generation import SearchedGeneration
from .blocks_losses import head_output, lm_loss_and_logits, shift_labels
from .blocks_recurrent_step import PlainSteps, RecurrentStepper
from .blocks_search import Stepper


class CausalLMHead(SearchedGeneration):
    """Predicts the next token: `self.model` gives hidden states, `self.lm_head` their logits."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values=None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """
        Args:
            logits_to_keep: compute logits for the last N positions only, 0 for all; or for these positions.
            skip_logits: compute the loss without returning logits; the default in training with labels.
            kwargs: for `self.model`; or `shift_labels`, labels that are shifted already. They are no parameter, because
                Trainer expects every parameter with "label" in its name in each batch.
        """
        shifted = kwargs.pop("shift_labels", None)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
            return_dict=True,
        )
        features = outputs.last_hidden_state
        check_logits_to_keep(logits_to_keep, features.shape[1])
        targets = shift_labels(labels, shifted)
        if targets is None:
            is_count = isinstance(logits_to_keep, int)
            features = features[:, slice(-logits_to_keep, None) if is_count else logits_to_keep]
        skip_logits = self.training if skip_logits is None else skip_logits
        dropped = self.dropout(features)
        loss, logits = lm_loss_and_logits(dropped, self.lm_head, targets, skip_logits, num_items_in_batch)
        if loss is not None:
            loss = self.penalise(loss, outputs, attention_mask, targets, num_items_in_batch, dropped)
        return head_output(CausalLMOutputWithPast, outputs, loss=loss, logits=logits)

    def make_stepper(self, prompts: Tensor, num_beams: int, max_length: int, inputs: dict) -> Stepper | None:
        """Of a recurrent model: `self.model.advance` carries its states."""
        if not hasattr(self.model, "advance"):
            return None
        mask = inputs.get("attention_mask")
        mask = None if mask is None else mask[::num_beams]
        outputs = self.model(prompts, mask, use_cache=True, return_dict=True)
        logits, cache = self.lm_head(outputs.last_hidden_state[:, -1]), outputs.past_key_values
        states, seen = [cache.state(layer) or () for layer in range(len(cache))], cache.get_seq_length()
        steps = self.fast_steps(num_beams * len(prompts)) or PlainSteps(self.model.advance)
        return RecurrentStepper(steps, states, self.model.embed_tokens, self.lm_head, prompts, num_beams, logits, seen)

    def fast_steps(self, rows: int):
        """`self.model.advance` faster, or None where only that will do."""
        return None
