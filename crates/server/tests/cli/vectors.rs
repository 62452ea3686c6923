//! The core's test vectors through the command line.

use serde_json::Value;

use crate::run;

#[test]
fn every_test_vector_has_the_expected_output() {
    assert!(replay_all(include_str!("../../../core/tests/vectors.jsonl")) > 400);
}

#[test]
fn every_test_vector_with_callers_and_reservations_has_the_expected_output() {
    assert!(replay_all(include_str!("../../../core/tests/vectors_next.jsonl")) > 280);
}

/// Returns the number of steps.
fn replay_all(traces: &str) -> usize {
    let mut step_count = 0;
    for line in traces.lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let quotas: Vec<&str> = match trace.get("quota") {
            Some(quota) => vec![quota.as_str().unwrap()],
            None => trace["quotas"]
                .as_array()
                .unwrap()
                .iter()
                .map(|quota| quota.as_str().unwrap())
                .collect(),
        };
        let mut args = vec!["replay"];
        args.extend(quotas.iter().flat_map(|quota| ["--quota", quota]));

        let steps = trace["steps"].as_array().unwrap();
        let input: String = steps.iter().map(request).collect();
        let output = run(&args, input);
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (0, ""),
            "{}",
            trace["id"]
        );
        let lines: Vec<&str> = output.stdout.lines().collect();
        assert_eq!(lines.len(), steps.len(), "{}", trace["id"]);
        for (i, (line, step)) in lines.iter().zip(steps).enumerate() {
            let step_name = format!("{} step {i}", trace["id"]);
            assert_eq!(*line, expected(step, &quotas), "{step_name}");
            step_count += 1;
        }
    }
    step_count
}

pub(crate) fn request(step: &Value) -> String {
    let mut line = serde_json::json!({ "t_us": step["t_us"], "key": "k" });
    for field in ["cost", "verb", "member", "weight", "owner", "id"] {
        if let Some(value) = step.get(field) {
            line[field] = value.clone();
        }
    }
    format!("{line}\n")
}

/// The whole line, to the byte.
fn expected(step: &Value, quotas: &[&str]) -> String {
    let mut line = format!(
        "{{\"t_us\":{},\"key\":\"k\",{}",
        step["t_us"],
        verdict_fields(step)
    );
    if quotas.len() > 1 {
        // The vectors name quotas in their canonical form already.
        let each = step["quotas"].as_array().unwrap().iter().zip(quotas);
        let each: Vec<String> = each
            .map(|(step, quota)| format!("{{\"quota\":\"{quota}\",{}}}", verdict_fields(step)))
            .collect();
        line += &format!(",\"quotas\":[{}]", each.join(","));
    }
    line + "}"
}

fn verdict_fields(step: &Value) -> String {
    let fields = [
        "allowed",
        "granted",
        "limit",
        "remaining",
        "retry_after_us",
        "reset_after_us",
        "delay_us",
    ];
    let field = |name: &&str| {
        let value = step.get(*name).unwrap();
        format!("\"{name}\":{value}")
    };
    fields.iter().map(field).collect::<Vec<_>>().join(",")
}
