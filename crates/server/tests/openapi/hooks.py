"""What docs/openapi.yaml cannot say in a schema: texts with a grammar of their own."""

import schemathesis
from hypothesis import strategies as st

# No two of one behaviour and period: those are one counter.
QUOTAS = [
    "100/min",
    "sliding-window-counter 1000000/day",
    "fixed-window 5/1h30min",
    "sliding-window-log 10/10s",
    "token-bucket 10/s burst 50",
    "leaky-bucket 10/s burst 20",
    "leaky-bucket 1000/ms queue 20",
    "gcra 1000000000/30d burst 1000000",
]

schemathesis.openapi.format("tallygate-quota", st.sampled_from(QUOTAS))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Keeps the keys of one question apart: one counter twice is an error of its own."""
    body = case.body
    if not isinstance(body, dict) or not isinstance(body.get("limits"), list):
        return

    def apart(number, limit):
        if isinstance(limit, dict) and isinstance(limit.get("key"), str):
            # Anew: the same limit may be in the list more than once.
            return {**limit, "key": f"{limit['key']}#{number}"}
        return limit

    limits = [apart(number, limit) for number, limit in enumerate(body["limits"])]
    case.body = {**body, "limits": limits}
