"""%layer: a program of 2 ranks; %status N COMMAND: the command must end with exit status N."""
import os

here = os.path.join(os.environ["SLUICE_LIT_ROOT"], "tests", "tools", "cli")
config.substitutions.append(("%layer", os.path.join(here, "layer.slp")))
config.substitutions.append(("%status", os.path.join(here, "status.sh")))
