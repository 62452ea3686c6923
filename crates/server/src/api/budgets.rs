//! `GET /v1/budgets/{name}`: what is left of a budget, and when it ends.

use http::Method;
use hyper::Request;
use hyper::body::Incoming;

use super::Api;
use crate::budgets::BudgetError;
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};

pub(super) const PREFIX: &str = "/v1/budgets/";

impl Api {
    pub(super) async fn budget(&self, request: &Request<Incoming>) -> HandlerResult {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(response::method_not_allowed(&[Method::GET]));
        }
        let path = request.uri().path();
        let name = response::percent_decode(path.strip_prefix(PREFIX).unwrap_or_default())?;
        let key = key(request.uri().query())?;
        let report = self
            .state
            .budgets
            .report(&self.state, &name, key.as_deref());
        match report.await {
            Ok(report) => {
                let json = serde_json::to_value(report).expect("a report only has text keys");
                Ok(response::ok(&json))
            }
            Err(BudgetError::Unknown) => {
                let detail = "no active rule spends a budget of that name";
                Err(Problem::new(Code::UnknownBudget, detail))
            }
            Err(BudgetError::WrongKey(0)) => {
                let detail = "all clients share this budget: there is none by key";
                Err(Problem::new(Code::UnknownBudget, detail))
            }
            Err(BudgetError::WrongKey(parts)) => {
                let detail = match parts {
                    1 => "this budget is by key: `?key=` says whose".to_owned(),
                    parts => format!("the key of this budget has {parts} parts: `?key=a,b`"),
                };
                Err(Problem::new(Code::UnknownBudget, detail))
            }
            Err(BudgetError::StoreFailed) => {
                let detail = "the store did not answer";
                Err(Problem::new(Code::StoreUnavailable, detail))
            }
        }
    }
}

/// The parts of the key, which are decoded one by one: a part may contain a comma.
fn key(query: Option<&str>) -> Result<Option<Vec<String>>, Problem> {
    response::parse_query(query, ["key"])?;
    let mut pairs = query.unwrap_or_default().split('&');
    let key = pairs.find_map(|pair| pair.strip_prefix("key="));
    key.map(response::key_parts).transpose()
}
