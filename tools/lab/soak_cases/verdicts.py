"""The allowed ends of a run: the right bits, or a named error and no other change."""
import os
import re

from soak_cases.layers import digest

# Messages by cause, as in docs/RANKS.md and the tools' tests; each without "sluice: error: ".
FORMS = {
    "killed": r"rank \d+ was killed by signal \d+ \(.+\)",
    "died": r"rank \d+( \(process \d+\))?( of job '.*')? has (died|ended before all ranks had joined)(; rank \d+.*)?",
    "waited": r"(rank \d+[^:]*: )?waited [\d.e+]+ s .+"
              r"|rank \d+, core [^:]*: task .+ did not run within [\d.e+]+ s"  # ready, but its core was stopped, or had no time
              r"|(rank \d+: )?cannot send to rank \d+: .+ did not drain within [\d.e+]+ s",
    "left": r"(rank \d+[^:]*: )?rank \d+ (has left|left)\b.+",
    "late": r"rank \d+ did not end within [\d.]+ s after rank \d+ had failed, and was killed",
    "refused": r"rank \d+: expert_ids\[\d+,\d+\] is -?\d+.*"
               r"|(rank \d+: )+tensor '\w+' has \d+ rows, but this routing gives the rank \d+"
               r"|rank \d+ has \d+ tokens, but rank \d+ of its group, which must have the same tokens, has \d+",
    "input": r"(rank \d+: )?.*: (cannot read|found|tensor|expected|header|not a).*",
    "disk": r"(rank \d+: )?.*cannot (write|make).*(No space left on device|File too large).*"
            r"|the limit of file sizes is \d+ bytes, but shared memory needs at least \d+",
    "memory": r"(rank \d+: )?.*([Cc]annot allocate memory|could not allocate|out of memory|cannot reserve|has room for|bad_alloc).*",
    "threads": r"(rank \d+: )?.*(Resource temporarily unavailable|thread).*",
    "files": r"(rank \d+: )?.*(Too many open files|may not open so many files).*",
    "ended": r"rank \d+ ended with exit status \d+",
}
# Before main() the system's loader reports what is missing.
LOADER = re.compile(r".*error while loading shared libraries: .*(cannot (map|allocate|create|open)|failed to map).*")
ERROR = re.compile(r"(?:\[rank \d+\] )?sluice: error: (.*)")


class Expected:
    """A set of outcomes: `right` bits, errors of the named forms, statuses besides 0 and 1."""

    def __init__(self, *forms, right=True, statuses=(), torn=False, silent=False, foreign=False):
        self.forms = forms
        self.right = right
        self.statuses = statuses
        self.torn = torn  # outputs of some ranks may exist: a rank died between agreement and its rename
        self.silent = silent  # a killed process prints nothing
        self.foreign = foreign  # another launcher may print anything


def named(line, forms):
    """Whether a line of standard error is an error of one of these forms."""
    error = ERROR.fullmatch(line)
    if error:
        return any(re.fullmatch(FORMS[form], error.group(1), re.S) for form in forms)
    return "memory" in forms and LOADER.fullmatch(line) is not None


def judge(job, layer, outs, before, expected):
    """(outcome, what is wrong with it or None). outs, before: files of the ranks, and their digests before."""
    text = job.text()
    lines = [line for line in text.splitlines() if line.strip()]
    if job.overdue and expected.foreign and not any("sluice" in name for name in job.stuck):
        return "mpirun hung", None
    if job.overdue:
        return "overdue", f"had not ended after {job.seconds:.0f} s: {text.strip()}"
    after = [digest(path) if os.path.exists(path) else None for path in outs]
    if job.status == 0:
        if not expected.right:
            return "right bits", "ended well, expected an error"
        if after != layer.digests:
            return "wrong bits", f"wrong outputs of rank(s) {[r for r, d in enumerate(after) if d != layer.digests[r]]}"
        return "right bits", f"wrote to standard error: {text.strip()}" if lines else None
    if job.status != 1 and job.status not in expected.statuses:
        return f"status {job.status}", f"ended with {job.status}: {text.strip()}"
    for rank, found in enumerate(after):
        if found != before[rank] and not (expected.torn and found == layer.digests[rank]):
            return "changed output", f"the output of rank {rank} changed although the run failed: {text.strip()}"
    unnamed = [line for line in lines if not named(line, expected.forms) and not (expected.foreign and "sluice" not in line)]
    if unnamed:
        return "unnamed error", f"status {job.status}, unexpected message: {' | '.join(unnamed)}"
    if not lines and not expected.silent:
        return "silence", f"ended with {job.status} without a message"
    return "named error", None
