"""What the caller of a layer gave, for messages to ranks whose callers gave something else."""

import dataclasses

# Fields of shapes -> the callers' names; None: that is not an argument.
_NAMES = {
    "experts": "num_experts",
    "encodings": "encode",
    "limit": "limit of activation",
    "ranks": None,
    "column": None,
    "ins": "input_size",
    "outs": "output_size",
    "send_cores": "num_sms_dispatch_api",
    "return_cores": "num_sms_combine_api",
    "is_float32": "x of float32",
    "serves": None,
}


def described(call: str, shape, **more) -> str:
    """"CALL: NAME=VALUE; NAME=VALUE", for the library (Workspace::agree): the fields of a shape, a dataclass, and `more`
    arguments. All calls of a kind have the same names in the same order, so that the first that differs is the cause."""
    items = {}
    for field in dataclasses.fields(shape):
        name, value = _NAMES.get(field.name, field.name), getattr(shape, field.name)
        if name is not None:
            items[name] = str(value).removeprefix("encode=") if name == "encode" else value
    return f"{call}: " + "; ".join(f"{name}={_text(value)}" for name, value in {**items, **more}.items())


def described_step(layer, names: list[str], shape, needed: tuple[bool, ...], weights: list, accumulate: bool) -> str:
    """A step of sluice_torch.MoE whose weights have these names; `needed` as in its _needed()."""
    asked = tuple(name for name, each in zip(("x", "expert_weights", *names), needed) if each)
    more = {"keep": layer.steps.keep, "lora": layer.lora, "dtype": weights[0].dtype, "requires_grad": asked, "main_grad": accumulate}
    more["delay_wgrad_compute"] = layer.delay_wgrad_compute
    return described("MoE", shape, **more)


def _text(value) -> str:
    text = ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
    return text.replace(";", ",")
