//! The core's test vectors through the command line.

use serde_json::Value;

use crate::run;

#[test]
fn every_test_vector_has_the_expected_output() {
    let mut step_count = 0;
    for line in include_str!("../../../core/tests/vectors.jsonl").lines() {
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
    assert!(step_count > 400, "only {step_count} steps were read");
}

pub(crate) fn request(step: &Value) -> String {
    let mut line = serde_json::json!({ "t_us": step["t_us"], "key": "k" });
    for field in ["cost", "verb"] {
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
