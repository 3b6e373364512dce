"""A model of transformers as a run calls it: forward(inputs..., labels...) with the names of transformers' arguments."""
import inspect


def causal_loss(torch, logits, labels):
    """labels[i] is the target of position i: nothing is shifted here."""
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), labels.reshape(-1))


def wrap(torch, model, inputs, labels, returns, shifted, renamed):
    """`shifted`: labels come shifted, as tools/tokenize writes them; else the model's own loss takes them. `renamed`:
    arguments of forward that are not called as the model's, {name of the model's: name}."""

    class HuggingFaceModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            given = dict(zip(inputs + labels, values, strict=True))
            targets = given.pop("labels") if shifted and labels else None
            output = self.model(**given, return_dict=True)
            if not labels:
                return predictions(output)
            loss = output.loss if targets is None else causal_loss(torch, output.logits, targets)
            return (loss, predictions(output)) if returns == "loss_logits" else loss

    parameter = inspect.Parameter
    names = ["self", *(renamed.get(name, name) for name in inputs), *labels]
    # The tracer asks for the signature: arguments of forward are matched with arrays by their names.
    HuggingFaceModel.forward.__signature__ = inspect.Signature(
        [parameter(name, parameter.POSITIONAL_OR_KEYWORD) for name in names])
    return HuggingFaceModel()


def predictions(output):
    if hasattr(output, "logits"):
        return output.logits
    if hasattr(output, "start_logits"):
        return output.start_logits, output.end_logits
    return next(value for name, value in output.items() if name != "loss")
