"""A causal model of transformers that says how probable both answers of a pair are."""
import torch
from transformers import AutoModelForCausalLM


class Pairs(torch.nn.Module):
    """forward(input_ids, targets), both [pairs, 2, positions]: the log-probability of each answer, [pairs, 2]. Targets are the
    tokens that follow, -100 in the prompt and behind the answer."""

    def __init__(self, directory: str):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(directory, use_cache=False, attn_implementation="eager")

    def forward(self, input_ids, targets):
        logits = self.model(input_ids=input_ids.flatten(0, 1)).logits.float()
        wanted = targets.flatten(0, 1)
        chosen = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return (chosen * (wanted >= 0)).sum(-1).view(input_ids.shape[0], 2)

    def example_inputs(self):
        ids = torch.arange(24).view(2, 2, 6)
        return ids, ids + 1
