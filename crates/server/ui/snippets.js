// A quota as it is used: in a rules file, in Rust, and in a request to the check API.

/** `[name, file or shell, text]` of each; `origin` is where the API is. */
export function snippets(quota, origin) {
  return [
    ['YAML', `# rules.yaml
# tallygate serve --config rules.yaml --upstream http://localhost:3000
version: 1
rules:
  - name: per-client
    key: [ip]
    limits: [${quota}]
`],
    ['Rust', `use tallygate::{Limiter, quota};

fn main() {
    let quota = quota!("${quota}");
    let limiter = Limiter::new(quota);
    let decision = limiter.check("user:42");
    if decision.allowed() {
        println!("{} left", decision.remaining());
    }
}
`],
    ['curl', `curl -i ${origin}/v1/check \\
  -H 'content-type: application/json' \\
  -d '{"key":"user:42","quota":"${quota}"}'
`],
  ];
}
