"""adapter_config.json of the PEFT library: what it says of plain LoRA. A key or value that is not known here is refused by
name, because it may change what the adapters mean.

Which modules have adapters, with which r and scaling, follows PEFT (tuners_utils.check_target_module_exists and
get_pattern_key): target_modules, exclude_modules, modules_to_save, layers_to_transform with layers_pattern, rank_pattern,
alpha_pattern. Without layers_pattern the first number in a module's name is the number of its layer.
"""

import math
import pathlib
import re

from ..base.integers import MAX_SIZE
from .json_objects import read_object

# Keys without a meaning for adapters that are there: names, how training began, other parts of the model.
_IGNORED = {
    "task_type", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version", "megatron_core",
    "eva_config", "qalora_group_size", "trainable_token_indices", "ensure_weight_tying",
}  # fmt: skip
# Keys that this module reads.
_READ = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules",
    "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern",
}  # fmt: skip
# What changes an adapter's result or the weights beside it, and the values with which it does not.
_ONLY = {
    "use_dora": (False, None),
    "use_qalora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "bias": ("none", None),
    "target_parameters": ([], None),
    "alora_invocation_tokens": ([], None),
    "layer_replication": ([], None),
    "megatron_config": (None,),
    "loftq_config": ({}, None),
    "corda_config": ({}, None),
    "lora_ga_config": ({}, None),
    "velora_config": (None,),
    "monteclora_config": (None,),
    "kasa_config": (None,),
    "arrow_config": (None,),
    "use_bdlora": (None, False),
    "runtime_config": ({}, None),
    "enable_lora": (None,),  # of early versions
    "merge_weights": (False, None),
    # others (pissa, olora, corda, loftq, lora_ga) change the weights of the model, too
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}


class PeftConfig:
    """An adapter_config.json. ValueError: a file that is missing or is none of plain LoRA; what is not known."""

    def __init__(self, file: pathlib.Path):
        self.file = file
        try:
            content = file.read_bytes()
        except OSError as error:
            raise ValueError(f"{file}: cannot read: {error.strerror}") from None
        self._found = found = read_object(content, f"{file}: expected a JSON object")
        if found.doubled is not None:
            raise ValueError(f"{file}: {found.doubled} is there twice")
        if found.get("peft_type") != "LORA":
            self._refuse("peft_type", "'LORA'")
        self._check_known()
        self._check_types()
        self.dropout = float(found.get("lora_dropout") or 0.0)

    def rank_of(self, module: str) -> int:
        name, rank = self._of_module("rank_pattern", "r", module)
        if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_SIZE:
            raise ValueError(f"{self.file}: {name} gives {module} r={rank!r}, expected a whole number from 1 on, at most {MAX_SIZE}")
        return rank

    def scaling_of(self, module: str) -> float:
        name, alpha = self._of_module("alpha_pattern", "lora_alpha", module)
        if not _is_number(alpha) or alpha <= 0:
            raise ValueError(f"{self.file}: {name} gives {module} lora_alpha={alpha!r}, expected a positive number")
        rank = self.rank_of(module)
        return alpha / (math.sqrt(rank) if self._found.get("use_rslora") else rank)

    def check_is_target(self, module: str):
        """ValueError: the configuration does not give the module an adapter, so that PEFT would not use its tensors."""
        for name in ("exclude_modules", "modules_to_save"):
            if self._names(name, module):
                raise ValueError(f"{self.file}: {name} is {self._found[name]!r}, which has {module}")
        targets = self._found.get("target_modules")
        if not (targets == "all-linear" or self._names("target_modules", module)):
            raise ValueError(f"{self.file}: target_modules is {targets!r}, which does not have {module}")
        layers = self._found.get("layers_to_transform")
        if layers in (None, []) or module in targets:
            return
        layer = self._layer_of(module)
        if layer not in (layers if isinstance(layers, list) else [layers]):
            has = "no number of a layer" if layer is None else f"layer {layer}"
            raise ValueError(f"{self.file}: layers_to_transform is {layers!r}, but {module} has {has}")

    def _check_known(self):
        for name, value in self._found.items():
            if name in _ONLY:
                if not any(value == good and isinstance(value, bool) == isinstance(good, bool) for good in _ONLY[name]):
                    self._refuse(name, " or ".join(repr(good) for good in _ONLY[name] if good is not None) or "null")
            elif name not in _IGNORED and name not in _READ:
                self._refuse(name, "a configuration without this key, whose meaning is not known")

    def _check_types(self):
        for name in ("rank_pattern", "alpha_pattern"):
            if not isinstance(self._found.get(name) or {}, dict):
                self._refuse(name, "an object")
        for name in ("target_modules", "exclude_modules", "modules_to_save", "layers_pattern"):
            if not _is_text_or_list_of(str, self._found.get(name)):
                self._refuse(name, "a text or a list of texts")
        if not _is_text_or_list_of(int, self._found.get("layers_to_transform")):
            self._refuse("layers_to_transform", "a whole number or a list of them")
        if self._found.get("use_rslora") not in (None, False, True):
            self._refuse("use_rslora", "True or False")
        dropout = self._found.get("lora_dropout")
        if dropout is not None and not (_is_number(dropout) and 0 <= dropout <= 1):
            self._refuse("lora_dropout", "a number from 0 to 1")
        for name in ("layers_to_transform", "layers_pattern"):
            if self._found.get(name) not in (None, []) and isinstance(self._found.get("target_modules"), str):
                self._refuse(name, "none with target_modules that is a pattern")
        if self._found.get("layers_pattern") and self._found.get("layers_to_transform") is None:
            self._refuse("layers_pattern", "none without layers_to_transform")

    def _names(self, name: str, module: str) -> bool:
        """Whether a pattern, or one of a list of names, matches a module."""
        given = self._found.get(name) or []
        if name == "modules_to_save":
            each = [given] if isinstance(given, str) else given
            return any(self._matches(rf"(.*\.)?{one}(\..*)?", module) for one in each)
        if isinstance(given, str):
            return self._matches(given, module)
        return any(module == each or module.endswith(f".{each}") for each in given)

    def _layer_of(self, module: str) -> int | None:
        patterns = self._found.get("layers_pattern") or r"[^.]*"
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            found = self._search(rf".*?\.{pattern}\.(\d+)\.", module)
            if found is not None:
                return int(found[found.re.groups])
        return None

    def _matches(self, pattern: str, module: str) -> bool:
        return self._search(pattern, module, re.fullmatch) is not None

    def _search(self, pattern: str, module: str, search=re.match) -> re.Match | None:
        try:
            return search(pattern, module)
        except (re.error, RecursionError) as error:
            raise ValueError(f"{self.file}: {pattern!r} is no regular expression: {error}") from None

    def _of_module(self, pattern: str, default: str, module: str):
        """What the configuration says of a module: by the first pattern that ends its name, else the default."""
        for each, value in (self._found.get(pattern) or {}).items():
            if self._matches(rf"(.*\.)?({each})", module):
                return pattern, value
        return default, self._found.get(default)

    def _refuse(self, name: str, expected: str):
        raise ValueError(f"{self.file}: {name} is {self._found.get(name)!r}, expected {expected}")


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_text_or_list_of(kind: type, value) -> bool:
    values = value if isinstance(value, list) else [value]
    return value is None or all(isinstance(each, kind) and not isinstance(each, bool) for each in values)
