"""Names of parameters and buffers: in transformers' state_dict, and in the files that save_pretrained writes."""
import torch


class Shadow(torch.Tensor):
    """Shape and strides of a tensor; what is cut from it stays a view, which tells where it was."""

    def contiguous(self, *_, **__):
        return self


def state_names(model):
    """{id of a parameter or buffer: its name}, and the other names of those that have several: {other: name}."""
    state = model.state_dict(keep_vars=True)
    tied_away = set(getattr(model, "all_tied_weights_keys", None) or getattr(model, "_tied_weights_keys", None) or ())
    names, others = {}, {}
    for name, value in state.items():
        known = names.setdefault(id(value), name)
        if known == name:
            continue
        if known in tied_away and name not in tied_away:  # the files have the other one
            names[id(value)], known, name = name, name, known
        others[name] = known
    return names, others


def pieces_in_files(model):
    """Of tensors that the files have under another name or in several pieces: {name: [piece]}, each with the piece's name
    and, where it is not the whole tensor, the elements that it has: offset, shape and strides in the tensor. Names whose
    values the files have in another form come second."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before transformers 5 files and models have the same names
        return {}, []
    _, others = state_names(model)
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    shadows = {name: value.detach().to("meta").as_subclass(Shadow) for name, value in model.state_dict().items()
               if name not in others and name not in ignored}
    owners = {value.untyped_storage()._cdata: name for name, value in shadows.items()}
    pieces, strange = {}, []
    for name, value in revert_weight_conversion(model, dict(shadows)).items():
        owner = owners.get(value.untyped_storage()._cdata)
        if owner is None:
            strange.append(name)
        elif value is shadows[owner]:
            pieces.setdefault(owner, []).append({"name": name})
        else:
            pieces.setdefault(owner, []).append({"name": name, "offset": value.storage_offset(),
                                                 "shape": list(value.shape), "strides": list(value.stride())})
    return {name: found for name, found in pieces.items() if found != [{"name": name}]}, strange


def traced_names(wrapper, names):
    """{name in the exported file: name in the state_dict}, of parameters and buffers that the state_dict has."""
    found = {}
    for named in (wrapper.named_parameters(), wrapper.named_buffers()):
        found.update((name, names[id(value)]) for name, value in named if id(value) in names)
    return found


def lora_merges(model, names, adapter_name):
    """What merging adds to a weight: scaling * B @ A, by the weight's name in the state_dict; of plain LoRA on linear
    layers. Layers with other adapters come second."""
    from peft.tuners.lora.layer import Linear, LoraLayer

    merges, others = {}, []
    for path, layer in model.named_modules():
        if not isinstance(layer, LoraLayer) or adapter_name not in layer.scaling:
            continue
        if type(layer) is not Linear or layer.lora_variant.get(adapter_name) or adapter_name not in layer.lora_A:
            others.append(path)
            continue
        merges[names[id(layer.base_layer.weight)]] = {
            "a": f"model.{path}.lora_A.{adapter_name}.weight", "b": f"model.{path}.lora_B.{adapter_name}.weight",
            "scaling": layer.scaling[adapter_name], "transposed": bool(layer.fan_in_fan_out)}
    return merges, others
