"""What the examples share: texts, models in folders, training states, decoding, measurements, plots."""

import csv
import gzip
import json
import math
import os
import pathlib
import sys
import time

import sluice_torch
import torch
import torch.distributed as dist
from decoder import LanguageModel, Qwen3Block
from sluice_torch import state
from sluice_torch.weights import safetensors
from torch import nn
from tqdm import tqdm

ANARCHISM = "/usr/share/doc/anarchism/markdown"
RANK, RANKS = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_experts", "num_experts_per_tok", "moe_intermediate_size")
MOMENTS = ("exp_avg", "exp_avg_sq")  # what AdamW keeps of each parameter
COLUMNS = ("step", "seconds", "loss", "bytes per second", "share of the peak", "largest load over mean", "balancing loss", "held-out bits")


def run(main):
    """Calls main() at each rank; an error in its input becomes one line and status 1."""
    try:
        if RANKS > 1:
            dist.init_process_group("gloo")
        main()
    except (ValueError, OSError, EOFError) as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: error: {' '.join(str(error).split())}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def say(text: str):
    """Prints a line, at the first rank alone."""
    if RANK == 0:
        print(text, flush=True)


def all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    """Replaces a tensor by its sum over the ranks, and returns it."""
    if RANKS > 1:
        dist.all_reduce(tensor)
    return tensor


def average_gradients(model):
    """Makes gradients means over the ranks. Those of shared experts are sums over the tokens of all ranks already."""
    shared = {id(each) for layer in experts_of(model).values() for each in layer.parameters()}
    for parameter in model.parameters() if RANKS > 1 else ():
        if id(parameter) not in shared:
            dist.all_reduce(parameter.grad)
        parameter.grad.div_(RANKS)


def split_text(path, length: int, count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of a file, or of all files below a folder (.gz unpacked), in two parts: the text to train on, and [up to count,
    length + 1], stretches at equal distances of the held-out last twentieth."""
    path = pathlib.Path(path)
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder" + ": apt-get install anarchism, or give --text" * (str(path) == ANARCHISM))
    files = sorted({each.resolve() for each in path.rglob("*") if each.is_file()}) if path.is_dir() else [path]
    texts = [gzip.decompress(each.read_bytes()) if each.suffix == ".gz" else each.read_bytes() for each in files]
    text = torch.frombuffer(bytearray(b"\n".join(texts) or b"\n"), dtype=torch.uint8)
    size = max(len(text) // 20, 2 * length + 2)
    if len(text) < 2 * size:
        raise ValueError(f"{path} has {len(text)} bytes, expected at least {2 * size} for sequences of {length}")
    held, count = text[-size:], min(count, size // length)
    starts = [number * (size - length - 1) // (count - 1) for number in range(count)]
    return text[:-size], torch.stack([held[start : start + length + 1] for start in starts]).long()


def batch_of(text: torch.Tensor, step: int, batch: int, length: int, seed: int = 1) -> torch.Tensor:
    """[batch, length + 1]: random stretches of the text, the same in each run of this step with this seed."""
    starts = torch.randint(0, len(text) - length, (batch,), generator=torch.Generator().manual_seed(step + 1_000_000 * (seed - 1)))
    return torch.stack([text[start : start + length + 1] for start in starts.tolist()]).long()


@torch.no_grad()
def predict(model, windows: torch.Tensor, name: str = "held-out") -> torch.Tensor:
    """The log-probabilities of all bytes at each place of the windows, [N, L, 256]."""
    parts = tqdm(windows[:, :-1].split(8), desc=name, leave=False, disable=RANK > 0)
    return torch.cat([model(part).float().log_softmax(-1) for part in parts])


def bits_per_byte(predicted: torch.Tensor, windows: torch.Tensor) -> float:
    return -predicted.gather(-1, windows[:, 1:, None]).mean().item() / math.log(2)


def make_config(args) -> dict:
    """The config.json of a model with the sizes of the command line."""
    config = dict(zip(SIZES, (args.layers, args.hidden, args.heads, args.num_experts, args.top_k, args.intermediate)))
    config |= {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 256, "hidden_act": "silu"}
    config |= {"num_key_value_heads": args.heads, "head_dim": args.hidden // max(args.heads, 1), "torch_dtype": "bfloat16"}
    config |= {"max_position_embeddings": args.length, "norm_topk_prob": True, "rope_theta": 10000.0, "rms_norm_eps": 1e-6}
    return check_config(config | {"tie_word_embeddings": False}, "the options")


def check_config(config: dict, of: str) -> dict:
    for name in (*SIZES, "max_position_embeddings"):
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise ValueError(f"{name} of {of} is {config.get(name)!r}, expected a positive whole number")
    hidden, heads, experts, top_k = (config[name] for name in SIZES[1:5])
    if hidden % (2 * heads) or experts < top_k:
        raise ValueError(f"{of}: hidden {hidden}, heads {heads}, experts {experts}, top k {top_k}: expected even parts, and k experts")
    return config


def read_config(folder) -> dict:
    if not (pathlib.Path(folder) / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json: expected a folder that one of the examples has written")
    return check_config(sluice_torch.Checkpoint(folder).config(), f"{folder}/config.json")


def encoding_of(folder) -> str:
    """How sluice_torch.convert has stored the experts, if it has written the folder."""
    made = pathlib.Path(folder) / "sluice.json"
    return json.loads(made.read_text())["encode"] if made.is_file() else "bf16"


def new_model(config: dict, seed: int = 1) -> LanguageModel:
    """A model with eager experts in float32, initialised to be trained."""
    layers, hidden, heads, experts, top_k, intermediate = (config[name] for name in SIZES)
    torch.manual_seed(seed)
    model = LanguageModel(lambda: Qwen3Block(hidden, intermediate, experts, top_k), layers, hidden, heads)
    for matrix in (each for each in model.parameters() if each.dim() == 2):
        nn.init.normal_(matrix, std=0.02)
    return model


def experts_of(model) -> dict[str, sluice_torch.MoE]:
    """The layers of Sluice by the prefix of their experts, which is that of the files, too."""
    return {name: each for name, each in model.named_modules() if isinstance(each, sluice_torch.MoE)}


def load_model(folder, experts: str = "sluice", encode: str | None = None, lora=None, weights=None):
    """A model from a folder, without gradients except those of adapters. Experts are encoded as `encode` says, by default as the
    folder has them; eager ones have the numbers that these codes stand for. `weights`: another file with them. ValueError: files that are damaged or have another shape."""
    config = read_config(folder)
    model = new_model(config).requires_grad_(False).to("meta")
    sluice_torch.replace_moe(model, encode=encode or encoding_of(folder), lora=lora, steps=sluice_torch.Steps(pack_frozen=True))
    sluice_torch.load_model(model, weights or folder, progress=sys.stderr.isatty())
    for layer in experts_of(model).values():
        if lora is None and layer.gate_up_weight.dtype == torch.float32:
            layer.to(torch.bfloat16)
    if experts == "sluice":
        return model.eval()
    plain = new_model(config).requires_grad_(False)
    plain.load_state_dict(state.to_original(model))
    hidden, dtypes = config["hidden_size"], (torch.float32, torch.bfloat16)
    factors = {dtype: (torch.ones(64, hidden, dtype=dtype), torch.ones(hidden, hidden, dtype=dtype)) for dtype in dtypes}
    return plain.to(min(dtypes, key=lambda dtype: best_time(lambda: torch.matmul(*factors[dtype])))).eval()  # the faster one


def write_model(folder, tensors: dict, config: dict):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    safetensors.write(f"{folder}/model.safetensors", tensors)
    with safetensors.replacing(f"{folder}/config.json") as file:
        file.write(json.dumps(config, indent=2).encode() + b"\n")


def size_of(model, active: bool = False) -> int:
    """Bytes of all parameters, or of those that decoding one token reads."""
    sizes = {name: each.numel() * each.element_size() for name, each in model.named_parameters()}
    block, own = model.model.layers[0].mlp, sum(size for name, size in sizes.items() if ".experts." in name)
    rest = sum(sizes.values()) - own - active * sizes["model.embed_tokens.weight"]
    return rest + (own * block.top_k // block.gate.out_features if active else own)


def save_training(folder, model, optimizer, config: dict, rows: list):
    """Writes the model in bfloat16, and to resume: all in float32, with all ranks' experts, and log.csv with its plot. Collective."""
    own, whole, folder = {"weight": dict(model.named_parameters())}, {"steps": torch.tensor(float(len(rows)))}, pathlib.Path(folder)
    own |= {kind: {name: optimizer.state[each][kind] for name, each in own["weight"].items()} for kind in MOMENTS}
    for kind, tensors in own.items():
        for prefix, layer in experts_of(model).items():
            for name in ("gate_up_weight", "down_weight"):
                tensors[f"{prefix}.{name}"] = state.gather(name, tensors[f"{prefix}.{name}"].detach(), layer, None)
        whole.update({f"{kind}.{name}": each for name, each in state.to_original(model, tensors).items()})
    if RANK == 0:
        write_model(folder, {name[7:]: each.bfloat16() for name, each in whole.items() if name.startswith("weight.")}, config)
        (folder / "training").mkdir(exist_ok=True)
        with safetensors.replacing(folder / "log.csv") as file:
            file.write("".join(",".join(map(str, row)) + "\n" for row in [COLUMNS, *rows]).encode())
        safetensors.write(folder / "training" / "state.safetensors", whole)
        points = [[(row[0], row[at]) for row in rows if not math.isnan(row[at])] for at in range(len(COLUMNS))]
        draw(folder / "training.png", {name: tuple(zip(*own)) for name, own in list(zip(COLUMNS, points))[2:]})


def load_training(folder, model, optimizer, config: dict) -> list:
    """Sets this rank's part of a saved model and optimizer; returns the rows of log.csv, one per step."""
    found, folder = read_config(folder), pathlib.Path(folder)
    for name in SIZES:
        if found[name] != config[name]:
            raise ValueError(f"{folder} has {name} {found[name]}, but the options say {config[name]}")
    checkpoint, log = sluice_torch.Checkpoint(folder / "training" / "state.safetensors"), folder / "log.csv"
    steps = checkpoint["steps"].clone()
    for kind in ("weight", *MOMENTS):
        own = state.from_original(model, {name[len(kind) + 1 :]: checkpoint[name] for name in checkpoint if name.startswith(f"{kind}.")})
        if kind == "weight":
            model.load_state_dict(own)
            continue
        for name, parameter in model.named_parameters():
            optimizer.state[parameter].update({"step": steps.clone(), kind: own[name].clone()})
    rows = [[int(step), *map(float, rest)] for step, *rest in csv.reader(log.read_text().splitlines()[1 : int(steps) + 1])]
    if len(rows) < steps:
        raise ValueError(f"{log} has {len(rows)} steps, expected the {int(steps)} of the training's state")
    return rows


@torch.no_grad()
def generate(model, prompts: list[torch.Tensor], count: int, choose=lambda logits: logits.argmax(-1)):
    """Yields `count` times the next token of each prompt, [B]. Keys and values are kept; shorter prompts are padded on the right,
    where later tokens take the place of the pads before anything reads them."""
    lengths, first, dtype = torch.tensor([len(each) for each in prompts]), model.model.layers[0].self_attn, model.lm_head.weight.dtype
    sizes = (len(prompts), first.heads, int(lengths.max()) + count, len(first.q_norm.weight))
    cache = [(torch.zeros(sizes, dtype=dtype), torch.zeros(sizes, dtype=dtype)) for _ in model.model.layers]
    tokens = nn.utils.rnn.pad_sequence([each.long() for each in prompts], batch_first=True)
    logits = model(tokens, cache=cache)[torch.arange(len(prompts)), lengths - 1]
    for number in range(count):
        chosen = choose(logits.float())
        yield chosen
        if number + 1 < count:
            logits = model(chosen[:, None], (lengths + number)[:, None], cache)[:, 0]


def best_time(work, repetitions: int = 5) -> float:
    """The seconds of the fastest call of work()."""
    times = [time.perf_counter()]
    for _ in range(repetitions):
        work()
        times.append(time.perf_counter())
    return min(b - a for a, b in zip(times, times[1:]))


def peak_flops(size: int = 1024) -> float:
    """Operations per second of a plain product of float32 matrices, the peak that the examples compare with."""
    a = torch.randn(size, size)
    return 2 * size**3 / best_time(lambda: a @ a, 15)


def read_bandwidth() -> float:
    """Bytes per second that this machine reads: the sum of 256 MiB of float32."""
    numbers = torch.ones(64 << 20)
    return 4 * len(numbers) / best_time(numbers.sum)


def flops_per_token(config: dict, length: int) -> float:
    """Operations of a forward per token, with K experts and `length` keys; a backward takes twice as many."""
    layers, hidden, _, experts, top_k, intermediate = (config[name] for name in SIZES)
    return 2 * (layers * (4 * hidden**2 + hidden * experts + 3 * top_k * hidden * intermediate + 2 * hidden * length) + 256 * hidden)


def memory(forget_peak: bool = False) -> int:
    """The largest memory of this process in bytes (VmHWM), since the last call with `forget_peak`."""
    if forget_peak:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def draw(path, curves: dict[str, tuple[list, list]]):
    """Draws a PNG with a curve for each name: (x, y)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6))
    places = figure.subplots(2, -(-len(curves) // 2), squeeze=False, gridspec_kw={"hspace": 0.5})
    for place, (name, (x, y)) in zip(places.flatten(), curves.items()):
        place.plot(x, y, "o" if isinstance(x[0], str) else ".-" if len(x) < 40 else "-", linewidth=0.9)
        place.set_title(name, fontsize=9)
        place.tick_params(labelsize=7, axis="x", rotation=60 if isinstance(x[0], str) else 0)
        place.grid(alpha=0.3)
    for place in places.flatten()[len(curves) :]:
        place.set_axis_off()
    figure.savefig(path, dpi=110, bbox_inches="tight")
