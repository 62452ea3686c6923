//! Actual costs: what a request turns out to have cost, read from its response.

use ::http::header::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use super::json::{JsonBody, JsonPath};

/// Where the actual cost of a request is found in its response: the first source that has it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualCost(Vec<ActualSource>);

/// A place of an actual cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActualSource {
    /// A header of the response, in decimal digits.
    Header(HeaderName),
    /// A value in the response's body: see [`JsonBody`]. It is read in passing.
    Json(JsonPath),
}

/// Reads the actual costs of the rules of one request from its response.
#[derive(Debug)]
pub(super) struct ActualReader {
    costs: SmallVec<[Reading; 1]>,
    body: Option<JsonBody>,
}

/// What is known of an actual cost from the head of the response.
#[derive(Debug, Default)]
struct Reading {
    /// The paths to look for in the body, by their position there.
    paths: SmallVec<[usize; 1]>,
    /// The cost if the body has none of them.
    otherwise: Option<u32>,
}

impl ActualCost {
    /// Reads the cost from the first of some sources that has it.
    pub fn new(sources: impl IntoIterator<Item = ActualSource>) -> Self {
        ActualCost(sources.into_iter().collect())
    }

    /// The sources, in order.
    pub fn sources(&self) -> &[ActualSource] {
        &self.0
    }

    /// Whether the body of the response may be needed.
    pub fn reads_body(&self) -> bool {
        let mut sources = self.0.iter();
        sources.any(|source| matches!(source, ActualSource::Json(_)))
    }
}

impl ActualReader {
    /// Reads the head of a response. Of each cost `None` is not read at all.
    pub(super) fn new<'c>(
        costs: impl Iterator<Item = Option<&'c ActualCost>>,
        headers: &HeaderMap,
    ) -> Self {
        let mut paths: Vec<JsonPath> = Vec::new();
        let costs = costs.map(|cost| {
            let mut reading = Reading::default();
            for source in cost.map_or(&[][..], ActualCost::sources) {
                match source {
                    ActualSource::Header(name) => {
                        reading.otherwise = header(headers, name);
                        if reading.otherwise.is_some() {
                            break;
                        }
                    }
                    ActualSource::Json(path) => {
                        let known = paths.iter().position(|known| known == path);
                        reading.paths.push(known.unwrap_or_else(|| {
                            paths.push(path.clone());
                            paths.len() - 1
                        }));
                    }
                }
            }
            reading
        });
        let costs = costs.collect();
        let body = match paths.is_empty() {
            true => None,
            false => JsonBody::from_headers(headers, paths),
        };
        ActualReader { costs, body }
    }

    /// Whether the body has to be read.
    pub(super) fn needs_body(&self) -> bool {
        self.body.is_some()
    }

    /// Reads the next piece of the body.
    pub(super) fn read(&mut self, piece: &[u8]) {
        if let Some(body) = &mut self.body {
            body.read(piece);
        }
    }

    /// Ends the body and returns the costs, in order.
    pub(super) fn finish(self) -> SmallVec<[Option<u32>; 1]> {
        let found: SmallVec<[Option<u32>; 1]> =
            self.body.into_iter().flat_map(JsonBody::finish).collect();
        let costs = self.costs.iter().map(|reading| {
            let mut paths = reading.paths.iter();
            let in_body = paths.find_map(|&path| found.get(path).copied().flatten());
            in_body.or(reading.otherwise)
        });
        costs.collect()
    }
}

/// A whole number below 2^32 in a header, if all of its lines say the same.
fn header(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    let mut values = headers.get_all(name).iter().map(|value| {
        let digits = value.as_bytes().trim_ascii();
        let is_whole = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let digits = str::from_utf8(digits).ok().filter(|_| is_whole)?;
        digits.parse::<u32>().ok()
    });
    let first = values.next()??;
    values.all(|value| value == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(path: &str) -> ActualSource {
        ActualSource::Json(path.parse().unwrap())
    }

    fn tokens() -> ActualSource {
        ActualSource::Header(HeaderName::from_static("x-tokens"))
    }

    fn read(
        costs: &[&[ActualSource]],
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Vec<Option<u32>> {
        let costs: Vec<ActualCost> = costs
            .iter()
            .map(|sources| ActualCost::new(sources.iter().cloned()))
            .collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let mut reader = ActualReader::new(costs.iter().map(Some), &map);
        if reader.needs_body() {
            reader.read(body.as_bytes());
        }
        reader.finish().into_vec()
    }

    #[test]
    fn the_first_source_that_has_a_cost_counts() {
        let body = r#"{"n":5}"#;
        for (sources, headers, expected) in [
            (&[tokens()][..], &[("x-tokens", " 812 ")][..], Some(812)),
            (&[tokens()], &[], None),
            (&[tokens(), json("n")], &[("x-tokens", "812")], Some(812)),
            (&[tokens(), json("n")], &[("x-tokens", "-1")], Some(5)),
            (&[json("n"), tokens()], &[("x-tokens", "812")], Some(5)),
            (&[json("m"), tokens()], &[("x-tokens", "812")], Some(812)),
            (&[json("m"), json("n")], &[], Some(5)),
            // A compressed body is not read.
            (&[json("n")], &[("content-encoding", "gzip")], None),
        ] {
            assert_eq!(read(&[sources], headers, body), [expected], "{sources:?}");
        }
        let costs: [&[ActualSource]; 3] = [&[json("n")], &[json("m"), json("n")], &[json("m")]];
        assert_eq!(read(&costs, &[], body), [Some(5), Some(5), None]);
    }

    #[test]
    fn a_header_is_a_whole_number_or_nothing() {
        for (values, expected) in [
            (&["0"][..], Some(0)),
            (&["4294967295"], Some(u32::MAX)),
            (&["4294967296"], None),
            (&["+1"], None),
            (&["-1"], None),
            (&["1.0"], None),
            (&["1e3"], None),
            (&["1, 1"], None),
            (&["", "1"], None),
            (&["1", "1"], Some(1)),
            (&["1", "2"], None),
            (&["1", "x"], None),
        ] {
            let headers: Vec<_> = values.iter().map(|value| ("x-tokens", *value)).collect();
            assert_eq!(read(&[&[tokens()]], &headers, ""), [expected], "{values:?}");
        }
    }
}
