"""Formats that a schema in docs/openapi.yaml cannot express."""

import schemathesis
from hypothesis import strategies as st

# Each with its own algorithm and period: equal ones would be one counter.
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
    """Makes the keys of a request distinct: a duplicate counter is an error."""
    body = case.body
    if not isinstance(body, dict) or not isinstance(body.get("limits"), list):
        return

    def distinct(number, limit):
        if isinstance(limit, dict) and isinstance(limit.get("key"), str):
            # A copy: the list may contain the same object twice.
            return {**limit, "key": f"{limit['key']}#{number}"}
        return limit

    limits = [distinct(number, limit) for number, limit in enumerate(body["limits"])]
    case.body = {**body, "limits": limits}
