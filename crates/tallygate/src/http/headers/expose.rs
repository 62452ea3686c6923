//! `Access-Control-Expose-Headers`: lets scripts of other origins read the rate limit headers.

use ::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderMap, HeaderName, RETRY_AFTER,
};

use super::{RATELIMIT, RATELIMIT_POLICY, X_LIMIT, X_REMAINING, X_RESET, insert};

/// The headers and how they are listed.
const HEADERS: [(HeaderName, &str); 6] = [
    (RETRY_AFTER, "Retry-After"),
    (RATELIMIT, "RateLimit"),
    (RATELIMIT_POLICY, "RateLimit-Policy"),
    (X_LIMIT, "X-RateLimit-Limit"),
    (X_REMAINING, "X-RateLimit-Remaining"),
    (X_RESET, "X-RateLimit-Reset"),
];

/// Adds the rate limit headers of a response to its `Access-Control-Expose-Headers`, if the response
/// is for scripts of other origins.
pub(in crate::http) fn expose(headers: &mut HeaderMap) {
    if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let lines = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
    let mut list = lines.fold(Vec::new(), |mut list: Vec<u8>, line| {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(line.as_bytes());
        list
    });
    let listed = |list: &[u8], name: &[u8]| {
        let mut names = list.split(|&byte| byte == b',');
        names.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(name))
    };
    // For requests with credentials `*` is a name like any other.
    let credentials = headers.get(ACCESS_CONTROL_ALLOW_CREDENTIALS);
    let any = credentials.is_none_or(|value| value != "true");
    if any && listed(&list, b"*") {
        return;
    }
    let before = list.len();
    for (name, shown) in HEADERS {
        if headers.contains_key(name) && !listed(&list, shown.as_bytes()) {
            if !list.is_empty() {
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(shown.as_bytes());
        }
    }
    if list.len() > before {
        insert(headers, ACCESS_CONTROL_EXPOSE_HEADERS, list);
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    /// The list after `expose`, with the lines of a response that has `RateLimit` and `Retry-After`.
    fn exposed(lines: &[(HeaderName, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert(RATELIMIT, HeaderValue::from_static("\"a\";r=1;t=1"));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        expose(&mut headers);
        let list = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
        list.map(|line| line.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_headers_are_added_to_the_list_of_the_service() {
        let origin = (ACCESS_CONTROL_ALLOW_ORIGIN, "https://app.example");
        let list = |names| (ACCESS_CONTROL_EXPOSE_HEADERS, names);
        let credentials = |value| (ACCESS_CONTROL_ALLOW_CREDENTIALS, value);
        let ours = "Retry-After, RateLimit";
        for (lines, expected) in [
            (vec![], vec![]),
            (vec![list("ETag")], vec!["ETag"]),
            (vec![origin.clone()], vec![ours]),
            (
                vec![origin.clone(), list("ETag")],
                vec!["ETag, Retry-After, RateLimit"],
            ),
            (
                vec![origin.clone(), list("ETag"), list("x-a ,x-b")],
                vec!["ETag, x-a ,x-b, Retry-After, RateLimit"],
            ),
            (
                vec![origin.clone(), list("ratelimit,retry-after")],
                vec!["ratelimit,retry-after"],
            ),
            (
                vec![origin.clone(), list("RateLimit")],
                vec!["RateLimit, Retry-After"],
            ),
            (vec![origin.clone(), list("*")], vec!["*"]),
            (vec![origin.clone(), list("ETag, *")], vec!["ETag, *"]),
            (
                vec![origin.clone(), credentials("true"), list("*")],
                vec!["*, Retry-After, RateLimit"],
            ),
            (
                vec![origin.clone(), credentials("false"), list("*")],
                vec!["*"],
            ),
        ] {
            assert_eq!(exposed(&lines), expected, "{lines:?}");
        }
    }
}
