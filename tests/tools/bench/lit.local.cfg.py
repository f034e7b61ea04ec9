"""%status N COMMAND: the command must end with exit status N."""
import os

status = os.path.join(os.environ["SLUICE_LIT_ROOT"], "tests", "tools", "cli", "status.sh")
config.substitutions.append(("%status", status))
