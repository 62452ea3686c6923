// An Express application that asks Tallygate's check API for every request.
// `npm install express`, then `node express.mjs`. Tested (crates/server/tests/proxies/clients.rs).
import express from "express";

const check = new URL("/v1/check", process.env.TALLYGATE_URL ?? "http://127.0.0.1:8080");

/** Middleware that admits what `rule` of the rules file admits. */
const rateLimit = (rule) => async (req, res, next) => {
  const attributes = { ip: req.ip, method: req.method, path: req.originalUrl };
  const body = JSON.stringify({ rule, attributes });
  const headers = { "content-type": "application/json" };
  const signal = AbortSignal.timeout(1000);
  const answer = await fetch(check, { method: "POST", headers, body, signal }).catch(() => null);
  if (!answer) return next(); // Tallygate cannot be reached: admit.
  answer.headers.forEach((value, name) => /^(x-)?ratelimit|^retry-after/.test(name) && res.set(name, value));
  if (answer.ok) return next();
  const status = answer.status === 429 ? 429 : 503; // 503: `on_failure: closed`, or a mistake in the call.
  res.status(status).json({ error: status === 429 ? "too many requests" : "rate limit unavailable" });
};

const app = express();
app.use("/api", rateLimit("api"));
app.get("/api/items", (req, res) => res.json(["a", "b"]));
const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log(server.address().port));
