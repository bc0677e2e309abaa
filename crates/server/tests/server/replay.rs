//! The recorded traffic of the original runner, sent again to this server: the
//! same calls in the same order get the same statuses and the same keys.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};
use trestle_testkit::model_server::{ModelServer, Script, ScriptTurn};

use crate::world::{Answer, World};

fn recordings() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../contract/tests/fixtures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    assert!(files.len() >= 14, "{files:?}");
    files
}

/// One scenario while it is sent again: what stands for the recorded names.
struct Replay<'w> {
    world: &'w World,
    names: Vec<(String, String)>,
    download: String,
    upload: String,
}

impl Replay<'_> {
    fn renamed(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (recorded, ours) in &self.names {
            text = text.replace(recorded, ours);
        }
        text
    }

    fn name(&mut self, recorded: &Value, ours: &Value) {
        if let (Some(recorded), Some(ours)) = (recorded.as_str(), ours.as_str())
            && recorded != ours
        {
            // Longer names first, so that none is a part of one already replaced.
            self.names.push((recorded.to_owned(), ours.to_owned()));
            self.names.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
        }
    }

    async fn send(&self, exchange: &Value) -> Answer {
        let method: Method = exchange["method"].as_str().unwrap().parse().unwrap();
        let path = exchange["path"].as_str().unwrap();
        let client = &self.world.client;
        if path.starts_with("/dl/") {
            let bytes = client.get(&self.download).send().await.unwrap();
            let status = bytes.status();
            assert!(!bytes.bytes().await.unwrap().is_empty());
            return Answer { status, headers: Default::default(), body: Value::Null, text: String::new() };
        }
        if path.starts_with("/put/") {
            let bytes = vec![7_u8; 5_242_880];
            let request = client.put(&self.upload).header("content-type", "application/octet-stream");
            return Answer::of(request.body(bytes).send().await.unwrap()).await;
        }
        let mut request = client.request(method, self.world.url(&self.renamed(path)));
        if let Some(token) = exchange["request_headers"]["authorization"].as_str() {
            request = request.header("authorization", self.renamed(token));
        }
        if !exchange["request_body"].is_null() {
            request = request
                .header("content-type", "application/json")
                .body(self.renamed(&exchange["request_body"].to_string()));
        }
        Answer::of(request.send().await.unwrap()).await
    }

    /// Learns which of our names stand for those of the recorded answer.
    fn learn(&mut self, path: &str, recorded: &Value, ours: &Value) {
        if path.ends_with("/register") {
            self.name(&recorded["runner_token"], &ours["runner_token"]);
            self.name(&recorded["runner_id"], &ours["runner_id"]);
        } else if path.ends_with("/pool/poll") {
            self.name(&recorded["assignment"]["run_id"], &ours["assignment"]["run_id"]);
            self.name(&recorded["assignment"]["assignment_id"], &ours["assignment"]["assignment_id"]);
        } else if path.contains("/pool/assignments/") {
            self.name(&recorded["lease_id"], &ours["lease_id"]);
            self.name(&recorded["control_plane"]["run_token"], &ours["control_plane"]["run_token"]);
        } else if path.ends_with("/version") {
            self.download = ours["program"]["downloadUrl"].as_str().unwrap().to_owned();
        } else if path.ends_with("/artifacts/presign") {
            self.name(&recorded["s3Key"], &ours["s3Key"]);
            self.upload = ours["uploadUrl"].as_str().unwrap().to_owned();
        } else if path.ends_with("/children") {
            self.name(&recorded["childRunId"], &ours["childRunId"]);
        }
    }
}

fn keys(value: &Value) -> BTreeSet<&String> {
    value.as_object().into_iter().flat_map(serde_json::Map::keys).collect()
}

/// The frames of a recorded turn and of ours are of the same kinds and keys, and end in the same one.
fn compare_streams(exchange: &Value, answer: &Answer) {
    let recorded_type = exchange["response_headers"]["content-type"].as_str().unwrap();
    assert_eq!(answer.headers["content-type"], recorded_type);
    let recorded = exchange["response_body"]["$ndjson"].as_str().unwrap();
    let ours: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = ours.last().unwrap();
    assert_eq!(result["t"], "result");
    assert_eq!(ours.iter().filter(|frame| frame["t"] == "result" || frame["t"] == "error").count(), 1);
    // Long recordings were cut; of those only the frames before the cut can be compared.
    for line in recorded.lines() {
        let Ok(frame) = serde_json::from_str::<Value>(line) else { continue };
        let same = match frame["t"].as_str().unwrap() {
            "result" => Some(result),
            kind => ours.iter().find(|ours| ours["t"] == kind),
        };
        let Some(same) = same else { continue };
        // The price is told when it is known.
        let wanted: BTreeSet<&String> = keys(&frame).into_iter().filter(|key| *key != "costMicros").collect();
        assert!(wanted.is_subset(&keys(same)), "{frame} {same}");
        assert_eq!(keys(&frame["turn"]), keys(&same["turn"]));
    }
}

async fn replay(file: &PathBuf) -> usize {
    let text = std::fs::read_to_string(file).unwrap();
    let exchanges: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Each recorded model turn is asked of a model that answers something.
    let turns =
        exchanges.iter().filter(|exchange| exchange["path"].as_str().unwrap().ends_with("/inference"));
    let turns = turns.enumerate().map(|(at, _)| ScriptTurn::text(&format!("answer {at}")));
    let model = ModelServer::start(Script::of(turns.collect())).await.unwrap();
    let world = World::start_with(|config| config.model.url = Some(model.openai_url())).await;
    world.deploy("child", json!({})).await;
    let asked: Vec<&str> = exchanges
        .iter()
        .filter(|exchange| exchange["path"].as_str().unwrap().ends_with("/secrets/resolve"))
        .filter_map(|exchange| exchange["request_body"]["name"].as_str())
        .collect();
    for name in asked.iter().collect::<BTreeSet<_>>() {
        let secret = json!({ "name": name, "value": "a value of the test" });
        world.api(Method::POST, "/v1/orgs/local/secrets", Some(secret)).await;
    }
    let granted: Vec<Value> = asked.iter().map(|name| json!({ "name": name })).collect();
    let workflow = world.deploy("recorded", json!({ "permissions": { "secrets": granted } })).await;
    let path = "/v1/orgs/local/runner-pools/default/registration-tokens";
    let token = world.api(Method::POST, path, None).await.body["registrationToken"].clone();
    let mut replay =
        Replay { world: &world, names: Vec::new(), download: String::new(), upload: String::new() };
    replay.name(&exchanges[0]["request_body"]["registration_token"], &token);

    let mut sent = 0;
    for exchange in &exchanges {
        let path = exchange["path"].as_str().unwrap();
        if path.ends_with("/pool/poll") {
            let claim = exchanges.iter().find(|one| {
                one["path"].as_str().unwrap().ends_with("/claim")
                    && one["path"].as_str().unwrap().starts_with("/runner/v1/runs/")
            });
            let input = claim.map_or(Value::Null, |claim| claim["response_body"]["run"]["input"].clone());
            world.trigger(&workflow, input).await;
        }
        let answer = replay.send(exchange).await;
        let recorded = &exchange["response_body"];
        assert_eq!(answer.status, exchange["status"].as_u64().unwrap() as u16, "{path} {answer:?}");
        if path.ends_with("/inference") {
            compare_streams(exchange, &answer);
        } else if path.contains("/pool/") || path.ends_with("/register") {
            assert_eq!(keys(recorded), keys(&answer.body), "{path}");
        } else if !path.starts_with("/put/") && !path.starts_with("/dl/") {
            let missing: Vec<_> = keys(recorded).difference(&keys(&answer.body)).copied().collect();
            assert!(missing.is_empty(), "{path} lacks {missing:?}");
        }
        replay.learn(path, recorded, &answer.body);
        sent += 1;
    }
    let runs = world.api(Method::GET, "/v1/orgs/local/workflows/recorded/runs", None).await;
    let status = runs.body["runs"][0]["status"].as_str().unwrap();
    let finalized = exchanges.iter().find(|one| one["path"].as_str().unwrap().ends_with("/finalize"));
    let expected = finalized.map_or("running", |one| one["request_body"]["status"].as_str().unwrap());
    assert_eq!(status, expected, "{}", file.display());
    sent
}

#[tokio::test]
async fn the_recorded_traffic_of_the_original_runner_is_served() {
    let mut sent = 0;
    for file in recordings() {
        sent += replay(&file).await;
    }
    assert!(sent > 125, "{sent}");
}
