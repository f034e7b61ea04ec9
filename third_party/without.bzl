"""Optional libraries can be left out although they are installed: --repo_env=SLUICE_WITHOUT=openmpi,torch."""

def is_wanted(ctx, name):
    return name not in ctx.os.environ.get("SLUICE_WITHOUT", "").split(",")
