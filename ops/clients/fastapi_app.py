"""A FastAPI application that asks Tallygate's check API for every request.

`pip install fastapi httpx uvicorn`, then `uvicorn fastapi_app:app`. Tested
(crates/server/tests/proxies/clients.rs).
"""
import os

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

app = FastAPI()
tallygate = httpx.AsyncClient(base_url=os.environ.get("TALLYGATE_URL", "http://127.0.0.1:8080"), timeout=1)


@app.middleware("http")
async def rate_limit(request: Request, call_next):
    attributes = {"ip": request.client.host, "method": request.method, "path": request.url.path}
    try:
        answer = await tallygate.post("/v1/check", json={"rule": "api", "attributes": attributes})
    except httpx.HTTPError:
        return await call_next(request)  # Tallygate cannot be reached: admit.
    if answer.is_success:
        response = await call_next(request)
    else:  # 503: `on_failure: closed`, or a mistake in the call.
        status = 429 if answer.status_code == 429 else 503
        response = JSONResponse({"error": "too many requests" if status == 429 else "rate limit unavailable"}, status)
    names = ("ratelimit", "x-ratelimit", "retry-after")
    response.headers.update({k: v for k, v in answer.headers.items() if k.startswith(names)})
    return response


@app.get("/api/items")
def items():
    return ["a", "b"]
