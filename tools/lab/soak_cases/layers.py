"""Random layers: a program, the inputs of its ranks, and the outputs of every correct run."""
import hashlib
import os
import re
import subprocess
import time

# graph, whether it has its own backward
GRAPHS = [("train", True), ("forward", False), ("forward", False), ("lora", False), ("shared_expert", False),
          ("two_gmms", False), ("biased", False)]
# linear layers, which all ranks share: without experts and routing
LINEARS = ["column_parallel", "column_parallel_bias", "row_parallel", "row_parallel_bias"]
LINEAR_SHARE = 0.3  # of all layers
ROUTINGS = ["uniform", "zipf:1.2", "zipf:2.5", "onehot", "half-empty", "masked"]
PATIENT = "60"  # --timeout of undisturbed runs, for a machine that may be busy


class Refused(Exception):
    """A step to make a layer failed; the message states which and why."""


def run_tool(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=300, **more)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: status {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Layer:
    """`description` identifies the layer; its files are in `folder`."""

    def __init__(self, tools, root, folder, rng, max_ranks):
        self.folder = folder
        self.program = os.path.join(folder, "layer.slp")
        self.inputs = os.path.join(folder, "in-{rank}")
        self.ranks = rng.randint(1, max_ranks)
        # ranks that share experts, and whether these have the same tokens
        self.tp = rng.choice([tp for tp in range(1, self.ranks + 1) if self.ranks % tp == 0])
        self.same = self.tp > 1 and rng.random() < 0.5
        graph, has_backward = rng.choice(GRAPHS)
        self.linear = rng.random() < LINEAR_SHARE
        if self.linear:
            graph, has_backward = rng.choice(LINEARS), False
            self.tp, self.same = self.ranks, rng.random() < 0.5
        file = os.path.join(root, "graphs", "linear" if self.linear else "moe_ffn", graph + ".json")
        symbols = self._symbols(tools, rng, graph, file)
        options = [f"--set={name}={value}" for name, value in symbols.items()]
        trained = not has_backward and rng.random() < 0.7
        if trained:
            options += ["--trainable", "all", *self._derived(rng)]
        if rng.random() < 0.2:
            options.append("--fuse=none")
        if rng.random() < 0.15:
            options += ["--target", "ascend910b"]
        self.tokens = self._tokens(rng, symbols["max_tokens"])
        self.routing = rng.choice(ROUTINGS)
        # the tokens of a rank cannot be seen in the inputs of a row-parallel forward alone
        needs_tokens = self.linear and (graph.startswith("row") and not trained or rng.random() < 0.3)
        # the input that has the rows of all ranks
        self.rows_input = ("x" if graph.startswith("row") else "dy" if trained else None) if self.linear else None
        self.run_options = ["--tokens", self.tokens] if needs_tokens else []
        self.description = f"{graph} {' '.join(options)}; tokens {self.tokens}, routing {self.routing}"
        compile_command = [tools.sluicec, file, *options, "-o", self.program]
        run_tool(compile_command, env={"SLUICE_TARGETS": os.path.join(root, "targets"), **os.environ})
        run_tool([tools.sluice, "make-inputs", self.program, "--out", self.inputs, "--tokens", self.tokens,
                  "--routing", self.routing, "--seed", str(rng.randint(1, 1 << 30))])
        self._make_reference(tools)

    @staticmethod
    def _words(tools, graph, symbol):
        """The words that a symbol may be set to: the message that refuses another one lists them."""
        command = [tools.sluicec, graph, f"--set={symbol}=none", "--emit=moe"]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300).stderr
        return re.search("expected (.*); the symbols are", said)[1].split(", ")

    def _symbols(self, tools, rng, graph, file):
        sizes = [1, 3, 7, 17, 31, 33, 65, 127, 129, 191] if rng.random() < 0.5 else [16, 32, 64, 96, 128, 256]
        symbols = {"tp": self.tp, "tokens": "same" if self.same else "own"}
        if self.linear:
            symbols |= {"in": rng.choice(sizes), "out": rng.choice(sizes)}
            symbols["out" if graph.startswith("column") else "in"] *= self.tp
        else:
            groups = self.ranks // self.tp
            experts = rng.randint(groups, groups * rng.choice([1, 2, 5]) + 3)
            symbols |= {"ep": groups, "experts": experts, "top_k": rng.randint(1, min(experts, 6)),
                        "hidden": rng.choice(sizes), "intermediate": self.tp * rng.choice(sizes)}
            if rng.random() < 0.25:
                symbols["spare"] = rng.randint(1, 6)
        symbols["max_tokens"] = rng.choice([1, 2, 5, 16, 37, 64, 129, 300])
        if not self.linear:
            symbols["activation"] = rng.choice(self._words(tools, file, "activation"))
        if graph == "lora":
            symbols["lora_rank"] = rng.choice([1, 3, 4, 16])
        if graph == "shared_expert":
            symbols["shared_intermediate"] = rng.choice(sizes)
        return symbols

    @staticmethod
    def _derived(rng):
        options = []
        if rng.random() < 0.5:
            options.append(rng.choice(["--keep=minimal", "--keep=regather"]))
        if rng.random() < 0.3:
            options.append("--accumulate")
        if rng.random() < 0.3:
            options.append("--grads=BF16")
        return options

    def _tokens(self, rng, most):
        kind = rng.random()
        if kind < 0.3:
            return str(most)
        if kind < 0.4:
            return "0"
        alike = self.tp if self.same else 1
        each = [rng.choice([0, 1, most, rng.randint(0, most)]) for _ in range(self.ranks // alike)]
        return ",".join(str(count) for count in each for _ in range(alike))

    def _make_reference(self, tools):
        """Makes the serial executor's outputs, which `sluice check` compares with double precision."""
        out = os.path.join(self.folder, "reference-{rank}")
        outs = [out.replace("{rank}", str(rank)) for rank in range(self.ranks)]
        command = [tools.sluice, "run", self.program, "--in", self.inputs, "--out", out, "--timeout", PATIENT,
                   *self.run_options]
        run_tool([*command, "--executor", "serial"])
        run_tool([tools.sluice, "check", self.program, "--in", self.inputs, "--out", out])
        self.digests = [digest(path) for path in outs]
        self.out_bytes = max(os.path.getsize(path) for path in outs)
        began = time.monotonic()
        run_tool([*command, "--transport", "shm"])
        self.seconds = time.monotonic() - began  # of an undisturbed run whose ranks are processes
        if [digest(path) for path in outs] != self.digests:
            raise Refused("ranks as processes give other bits than the serial executor")
