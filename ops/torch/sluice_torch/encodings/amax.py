"""The largest magnitudes (amaxes) of weights, for products with a scale per tensor (docs/PRECISION.md, *Per tensor*)."""

import weakref

import torch


@torch.no_grad()
@torch.inference_mode(False)  # the result may be kept for a step that trains
def amax_of(weight: torch.Tensor) -> torch.Tensor:
    """[E, 1] float32 of a weight [E, out, in], bfloat16 or float32: the largest finite magnitude of each expert, rounded to
    bfloat16; 0 of an empty one."""
    found = torch.zeros(len(weight), 1)
    for expert, each in enumerate(weight.detach()):
        if each.numel():
            least, most = torch.aminmax(each)
            found[expert] = torch.maximum(-least, most)
    found = found.bfloat16().float()
    for expert in (~torch.isfinite(found[:, 0])).nonzero().flatten().tolist():
        rounded = weight[expert].detach().bfloat16()
        finite = rounded[torch.isfinite(rounded)]
        found[expert] = finite.abs().max() if finite.numel() else 0
    return found


class WeightAmaxes:
    """The amaxes of the weights of a layer, by name. Each is computed again after a change of the weight that autograd
    counts, and after each backward that gave the weight a gradient: optimizers may write through .data, which autograd
    does not count."""

    def __init__(self):
        self._known = {}  # name -> weight (weak), (address, count of changes, count of backwards), amax
        self._backwards = 0

    def of(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """[E, 1] float32 for a weight [E, out, in], or [1, 1] for [out, in]."""
        whole = weight if weight.dim() == 3 else weight.unsqueeze(0)
        if weight.is_inference():  # without a count of changes
            return amax_of(whole)
        backwards = self._backwards if weight.requires_grad else 0
        state = weight.data_ptr(), weight._version, backwards
        known = self._known.get(name)
        if known is None or known[0]() is not weight or known[1] != state:
            known = self._known[name] = weakref.ref(weight), state, amax_of(whole)
        return known[2]

    def count_backward(self):
        """After a backward of the layer."""
        self._backwards += 1

    def __getstate__(self):
        return {"_known": {}, "_backwards": 0}
