//! Which call goes where, and what every call must be like.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trestle_contract::ErrorCode;

use super::connection::{Answer, Call};
use super::plane::Inner;
use super::{artifacts, pool, run};

/// Executes a call.
pub(super) async fn answer(inner: &Inner, call: &Call) -> Answer {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match (call.method.as_str(), segments.as_slice()) {
        ("POST", ["runner", "v1", "register"]) => pool::register(inner, call),
        ("POST", ["runner", "v1", "pool", rest @ ..]) => pool::answer(inner, call, rest).await,
        (method, ["runner", "v1", "runs", run_id, rest @ ..]) => {
            run::answer(inner, call, method, run_id, rest).await
        }
        ("GET", ["programs", run_id]) => {
            unsigned(inner, call);
            run::program(inner, run_id)
        }
        (method @ ("PUT" | "GET"), ["blobs", run_id, key @ ..]) => {
            unsigned(inner, call);
            artifacts::blob(inner, call, method, run_id, &key.join("/"))
        }
        _ => {
            violation(inner, call, "no such endpoint");
            Answer::failure(ErrorCode::NotFound, "no such endpoint")
        }
    }
}

/// Notes that a request is not what it should be.
pub(super) fn violation(inner: &Inner, call: &Call, what: &str) {
    inner.change(|state| state.violations.push(format!("{} {}: {what}", call.method, call.path)));
}

/// Signed addresses carry their proof; a credential there would leak to whoever serves them.
fn unsigned(inner: &Inner, call: &Call) {
    if call.headers.contains_key("authorization") {
        violation(inner, call, "a credential was sent to a signed address");
    }
}

/// Reads a body strictly: it must have the type's shape, and no key that the type does not know.
///
/// # Errors
/// The 400 to answer.
pub(super) fn body<T: DeserializeOwned + Serialize>(inner: &Inner, call: &Call) -> Result<T, Answer> {
    let refuse = |what: String| {
        violation(inner, call, &what);
        Answer::failure(ErrorCode::ValidationFailed, &what)
    };
    if call.headers.get("content-type").map(String::as_str) != Some("application/json") {
        return Err(refuse(format!("content-type is {:?}", call.headers.get("content-type"))));
    }
    let value: T = serde_json::from_slice(&call.body).map_err(|error| refuse(format!("body: {error}")))?;
    let sent: Value = serde_json::from_slice(&call.body).map_err(|error| refuse(format!("body: {error}")))?;
    let known = serde_json::to_value(&value).map_err(|error| refuse(format!("body: {error}")))?;
    let unknown = unknown_keys(&sent, &known, "");
    if unknown.is_empty() { Ok(value) } else { Err(refuse(format!("unknown keys {unknown:?}"))) }
}

/// Keys of what was sent that are missing in what was understood.
fn unknown_keys(sent: &Value, known: &Value, place: &str) -> Vec<String> {
    match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => sent
            .iter()
            .flat_map(|(key, value)| {
                let place = format!("{place}/{key}");
                match known.get(key) {
                    Some(known) => unknown_keys(value, known, &place),
                    None => vec![place],
                }
            })
            .collect(),
        (Value::Array(sent), Value::Array(known)) => sent
            .iter()
            .zip(known)
            .enumerate()
            .flat_map(|(index, (sent, known))| unknown_keys(sent, known, &format!("{place}/{index}")))
            .collect(),
        _ => Vec::new(),
    }
}
