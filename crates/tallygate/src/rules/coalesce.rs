//! Which requests may share one call to an upstream, and what makes them identical. Knows rules;
//! knows nothing of upstreams.

use crate::Key;
use crate::http::Head;

use super::compile::Compiled;
use super::evaluate::{Ear, Outcome};
use super::extract::Found;
use super::extract::Place;
use super::request_view::Asked;
use super::{Part, Rules};

/// What makes requests identical, besides method, host, path and query.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedBy {
    /// Every header that may hold a secret or say what answer is wanted.
    Credentials,
    /// These parts, and nothing else.
    Parts(Vec<Part>),
}

/// What a request has to have in common with others to share a call with them.
#[derive(Clone, PartialEq, Eq)]
pub enum Identical {
    /// Every header that may hold a secret or say what answer is wanted.
    Credentials,
    /// This.
    Key(Key<'static>),
}

impl Rules {
    /// What a request shares a call by: as the first rule says that applies to it and says
    /// anything. None if it is to have a call of its own, as it is where a part is missing or where
    /// servers may read its path as another.
    pub fn identical(&self, head: &Head<'_>) -> Option<Identical> {
        let shares = |compiled: &Compiled| compiled.rule.single_flight.is_some();
        if !self.rules.iter().any(shares) {
            return None;
        }
        let asked = Asked::new(head, &self.client);
        let mut first = First::default();
        self.walk(&asked, &mut first);
        let compiled = self.rules.iter().find(|compiled| {
            let name = Some(compiled.rule.name.as_str());
            name == first.name.as_deref()
        })?;
        let fit = compiled.rule.when.fit(&asked).ok().filter(|fit| fit.sure)?;
        let Some(drawing) = &compiled.flight else {
            return Some(Identical::Credentials);
        };
        let drawn = drawing.draw(&asked, fit.route, |_, _, _| {});
        match drawn.lack {
            None => Some(Identical::Key(drawn.key)),
            Some(_) => None,
        }
    }
}

/// Hears which rule is the first that applies and lets requests share calls.
#[derive(Default)]
struct First {
    name: Option<String>,
}

impl Ear for First {
    fn found(&mut self, _: usize, _: &Place, _: &Found<'_>) {}

    fn rule(&mut self, compiled: &Compiled, outcome: Outcome<'_>) {
        // A rule that only watches changes nothing.
        let rule = &compiled.rule;
        let shares = rule.single_flight.is_some() && !rule.shadow;
        if self.name.is_none() && shares && matches!(outcome, Outcome::Applies(_)) {
            self.name = Some(rule.name.to_string());
        }
    }
}
