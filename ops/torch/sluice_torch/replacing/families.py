"""The families of MoE blocks that people use: the names of their parts in models and in files, and what they compute.

replace_moe() reads the table first: a block with the names of a row is taken for that family, if a trial (trial.py) proves it. A block
with other names, or that the trial shows to compute something else, is recognised by shapes and by more trials (experts.py,
routing.py). load_model(), load_experts() and sluice_torch.convert take the names of experts in files from the same table.
"""

import dataclasses

NAMES = ("gate_proj", "up_proj", "down_proj")
STACKED = ("gate_up_proj", "down_proj")
STACKED_BIASES = ("gate_up_proj_bias", "down_proj_bias")


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table. Only lists of experts need the fields from `router` to `shared_gate`: a block of stacked experts keeps all
    that is beside them, whatever it is."""

    models: str
    form: str  # "list": a module for each expert; "stacked": gate_up [E, 2I, H] and down [E, H, I]; "transposed": [E, H, 2I] and [E, I, H]
    parts: tuple[str, ...]  # the names of gate, if there is one, up and down of an expert in a list; or of the tensors of all experts
    activation: str = "swiglu"
    biases: tuple[str, ...] = ()  # of the products with stacked tensors, [E, 2I] and [E, H]
    in_turn: bool = False  # stacked tensors have a column of the gate, then one of up, and so on, instead of all of the gate first
    block: str = "mlp"  # the name of the block in a layer
    experts: str = "experts"
    scattered: bool = False  # stacked experts are called with weights [T, E] instead of [T, K]
    router: str = "gate"
    scores: str = "softmax"  # as in routing.Routing; a router that gives ids and weights may have groups, a factor and a bias of its own
    normalise: bool = True  # as in routing.Routing; a block with norm_topk_prob = False does not
    shared: str = ""  # the expert that every token has
    shared_gate: str = ""
    architecture: str = ""  # general.architecture of GGUF files

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters of an expert in a list, or of the module of all."""
        return [f"{part}.weight" for part in self.parts] if self.form == "list" else [*self.parts, *self.biases]


FAMILIES = (
    Family("Qwen2-MoE", "list", NAMES, shared="shared_expert", shared_gate="shared_expert_gate", architecture="qwen2moe"),
    Family("Qwen3-MoE, OLMoE", "list", NAMES, architecture="qwen3moe"),
    Family("Mixtral", "list", ("w1", "w3", "w2"), block="block_sparse_moe"),
    Family("Jamba", "list", NAMES, block="feed_forward", router="router", normalise=False),
    Family("DeepSeek-V2, DeepSeek-V3, GLM-4.5", "list", NAMES, scores="given", normalise=False, shared="shared_experts"),
    Family("Nemotron-H", "list", NAMES[1:], "relu2", block="mixer", scores="given", normalise=False, shared="shared_experts"),
    Family("Qwen2-MoE, Qwen3-MoE, OLMoE, Mixtral, DeepSeek-V3 (transformers 5)", "stacked", STACKED),
    Family("Qwen3-VL-MoE", "transposed", STACKED, scattered=True),
    Family("gpt-oss", "transposed", STACKED, "swiglu_oai", STACKED_BIASES, in_turn=True, scattered=True),
    Family("gpt-oss (transformers 5)", "transposed", STACKED, "swiglu_oai", STACKED_BIASES, in_turn=True),
)
LISTED = tuple(dict.fromkeys(family.parts for family in FAMILIES if family.form == "list" and len(family.parts) == 3))


def find_rows(block, experts: str, router: str) -> list[Family]:
    """The rows whose names a block has. `experts` and `router` are the names of two of its parts."""
    own = {name for name, _ in block._modules[experts]._modules.get("0", block._modules[experts]).named_parameters()}
    rows = [row for row in FAMILIES if row.experts == experts and set(row.parameters) == own]
    sides = [{row.experts, row.router, row.shared, row.shared_gate} - {""} for row in rows]
    return [row for row, parts in zip(rows, sides) if row.form != "list" or row.router == router and parts == set(block._modules)]
