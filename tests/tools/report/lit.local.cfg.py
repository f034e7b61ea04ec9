"""%status N COMMAND: the command must end with exit status N."""
import os

config.substitutions.append(("%status", os.path.join(os.environ["SLUICE_LIT_ROOT"], "tests", "tools", "cli", "status.sh")))
