"""The exporter's own attention and mask functions, which transformers calls through its registries: a causal or a full
mask never becomes a tensor in the trace, whatever its sizes; a mask of the inputs stays one."""
NAME = "dslaunch"


class NotSupported(Exception):
    """An argument that a model gives its attention function."""


def use(model, run):
    """Where the model can be told which functions to call. `run`: a forward of the model; parts of it may need what
    these functions have not."""
    can_set = getattr(type(model), "_can_set_attn_implementation", lambda: False)()
    if not can_set or not getattr(model, "_supports_sdpa", False):
        return
    register()
    try:
        model.set_attn_implementation(NAME)
        run()
    except NotSupported:
        model.set_attn_implementation("eager")


def register():
    from transformers import AttentionInterface, masking_utils

    AttentionInterface.register(NAME, attend)
    masking_utils.AttentionMaskInterface.register(NAME, mask)
    # Under a trace transformers cannot look at positions, and takes all of them for several sequences packed into one.
    if hasattr(masking_utils, "find_packed_sequence_indices"):
        masking_utils.find_packed_sequence_indices = lambda position_ids: None


def mask(*, attention_mask=None, local_size=None, allow_is_causal_skip=True, allow_is_bidirectional_skip=False,
         config=None, **others):
    from transformers.masking_utils import sdpa_mask

    is_whole = local_size is None or local_size >= (getattr(config, "max_position_embeddings", None) or local_size + 1)
    if attention_mask is None and is_whole and (allow_is_causal_skip or allow_is_bidirectional_skip):
        return None
    return sdpa_mask(attention_mask=attention_mask, local_size=local_size, allow_is_causal_skip=False,
                     allow_is_bidirectional_skip=False, config=config, **others)


def attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, position_bias=None,
           **others):
    import torch

    refuse_unknown(others)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    is_causal = bool(is_causal) and attention_mask is None
    groups = getattr(module, "num_key_value_groups", 1)
    grouped = {}
    if groups > 1:
        if attention_mask is None and key.shape[-1] == value.shape[-1]:
            grouped = {"enable_gqa": True}
        else:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    if position_bias is not None:
        from transformers.integrations.sdpa_attention import create_position_bias_mask

        attention_mask, is_causal = create_position_bias_mask(position_bias, attention_mask, is_causal, query, key), False
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, is_causal=is_causal, **grouped)
    return output.transpose(1, 2).contiguous(), None


def refuse_unknown(others):
    """What changes the result and has no operator in PyTorch: transformers' eager attention computes it."""
    for name in ("softcap", "s_aux"):
        if others.get(name) is not None:
            raise NotSupported(name)
