"""%layer2, %layer4: programs of 2 and 4 ranks; %status N COMMAND: as in tests/tools/cli; %ranks: ranks by hand."""
import os

tools = os.path.join(os.environ["SLUICE_LIT_ROOT"], "tests", "tools")
config.substitutions.append(("%layer2", os.path.join(tools, "ranks", "layer2.slp")))
config.substitutions.append(("%layer4", os.path.join(tools, "ranks", "layer4.slp")))
config.substitutions.append(("%status", os.path.join(tools, "cli", "status.sh")))
config.substitutions.append(("%edit", "/usr/bin/python3 " + os.path.join(tools, "cli", "edit_safetensors.py")))
config.substitutions.append(("%check_trace", "/usr/bin/python3 " + os.path.join(tools, "cli", "check_trace.py")))
config.substitutions.append(("%ranks", "/usr/bin/python3 " + os.path.join(tools, "ranks", "start_ranks.py")))
config.substitutions.append(("%faults", "/usr/bin/python3 " + os.path.join(tools, "ranks", "faults.py")))
