//! Model calls that go straight to a provider with the organisation's own key.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::fake::{Fake, RUN, completes};
use trestle_contract::event::EventBody;
use trestle_sandbox::slot::SlotOutcome;
use trestle_testkit::control_plane::Fault as CallFault;
use trestle_testkit::model_server::{Fault, ModelServer, Outcome, Script, ScriptTurn, ScriptUsage};

const KEY: &str = "sk-provider-key-canary";
const KEY_NAME: &str = "inference-key/mine/0123abcd";

fn entry(source: &str, base_url: &str) -> Value {
    json!({ "name": "mine", "source": source, "base_url": base_url, "auth_secret_name": KEY_NAME })
}

fn said(text: &str) -> ScriptTurn {
    let usage = ScriptUsage { input: 100, output: 20, cache_read: 30, cache_write: 0 };
    ScriptTurn { usage: Some(usage), ..ScriptTurn::text(text) }
}

async fn model(turns: Vec<ScriptTurn>) -> ModelServer {
    ModelServer::start(Script { api_key: Some(KEY.into()), ..Script::of(turns) }).await.unwrap()
}

const ASKS_MINE: &str = "import { agent, secrets } from '@trestle/workflow'; \
    export default async function run(input) { return agent('say hello', { model: 'm', provider: 'mine', builtins: 'none' }); }";

/// A run whose claim lists the provider; its key is a secret.
async fn run_of(program: &str, source: &str, base_url: &str) -> Fake {
    let mut fake = Fake::start(program, Duration::from_secs(60), |run| {
        run.secrets.insert(KEY_NAME.into(), KEY.into());
    })
    .await;
    fake.byo_providers = vec![entry(source, base_url)];
    fake
}

fn texts(fake: &Fake) -> String {
    let text = |event: trestle_contract::event::Event| match event.body {
        EventBody::TextDelta { text, .. } => Some(text),
        _ => None,
    };
    fake.events().into_iter().filter_map(text).collect()
}

fn count(fake: &Fake, wanted: impl Fn(&EventBody) -> bool) -> usize {
    fake.events().iter().filter(|event| wanted(&event.body)).count()
}

/// Everything that went to the control plane, but the question for the key.
fn told(fake: &Fake) -> String {
    let exchanges = fake.plane.exchanges();
    let shown = exchanges.iter().filter(|exchange| exchange.operation() != "secrets/resolve");
    shown.map(|exchange| format!("{} {}\n", exchange.path, exchange.json())).collect()
}

#[tokio::test]
async fn an_own_provider_is_called_directly_on_both_wires_and_its_tokens_are_told_before_the_end() {
    for source in ["openai_compatible", "anthropic"] {
        let model = model(vec![said("straight from the model")]).await;
        let base = if source == "anthropic" { model.url() } else { model.openai_url() };
        let fake = run_of(ASKS_MINE, source, &format!("{base}/")).await;
        let mut process = fake.begin(fake.options()).await;
        completes(&mut process).await;
        assert_eq!(fake.output(), "straight from the model");
        assert_eq!(texts(&fake), "straight from the model");
        assert_eq!(model.requests().len(), 1);
        let order = fake.operations();
        assert!(!order.iter().any(|call| call == "POST inference"), "{order:?}");
        let tokens = order.iter().position(|call| call == "POST usage/tokens").unwrap();
        assert!(tokens < order.iter().position(|call| call == "POST finalize").unwrap());
        let report = &fake.plane.token_reports(RUN)[0];
        assert_eq!((report.input_tokens, report.output_tokens), (100, 20), "{source}");
        assert_eq!(report.cached_read_tokens, Some(30), "{source}");
        assert_eq!(report.model.as_deref(), Some("mine/m"));
        assert_eq!(report.brokered, Some(false));
        fake.assert_faultless();
    }
}

#[tokio::test]
async fn a_direct_answer_that_breaks_off_is_voided_and_generated_anew() {
    let model = model(vec![said("half of it").with_fault(Fault::cut(2)), said("all of it")]).await;
    let fake = run_of(ASKS_MINE, "openai_compatible", &model.openai_url()).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), "all of it");
    assert_eq!(count(&fake, |body| matches!(body, EventBody::TurnReset {})), 1);
    assert!(texts(&fake).ends_with("all of it"), "{}", texts(&fake));
    // Both attempts were charged, and are told as one turn.
    let reports = fake.plane.token_reports(RUN);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].input_tokens > 100 && reports[0].output_tokens > 20, "{reports:?}");
}

#[tokio::test]
async fn an_overloaded_provider_is_asked_again_and_a_refusal_reaches_the_author_without_the_key() {
    let model = model(vec![ScriptTurn::fault(Fault::http(503)), said("after all")]).await;
    let fake = run_of(ASKS_MINE, "openai_compatible", &model.openai_url()).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), "after all");

    let other =
        ModelServer::start(Script { api_key: Some("another".into()), ..Script::saying("no") }).await.unwrap();
    let fake = run_of(ASKS_MINE, "openai_compatible", &other.openai_url()).await;
    let mut process = fake.begin(fake.options()).await;
    assert_eq!(process.outcome().await, SlotOutcome::Failed { code: "PROVIDER_ERROR".into() });
    let error = fake.error();
    assert!(error["hint"].as_str().unwrap().contains("trestle inference"), "{error}");
    assert!(!told(&fake).contains("canary"));
}

#[tokio::test]
async fn a_cancel_stops_the_provider_and_what_it_has_used_is_told() {
    let model = model(vec![said("a few words and then silence").with_fault(Fault::silence(3))]).await;
    let fake = run_of(ASKS_MINE, "openai_compatible", &model.openai_url()).await;
    let mut process = fake.begin(fake.options()).await;
    fake.until("the first words", |plane| {
        plane.events(RUN).iter().any(|(_, event)| matches!(event.body, EventBody::TextDelta { .. }))
    })
    .await;
    fake.plane.cancel(RUN);
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "cancelled".into() });
    model.wait_for(|requests| requests[0].outcome == Outcome::ClientGone).await.unwrap();
    let reports = fake.plane.token_reports(RUN);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].input_tokens > 0);
    assert_eq!(reports[0].model.as_deref(), Some("mine/m"));
}

#[tokio::test]
async fn tokens_of_a_direct_call_are_told_through_an_outage_before_the_run_ends() {
    let model = model(vec![said("told")]).await;
    let fake = run_of(ASKS_MINE, "openai_compatible", &model.openai_url()).await;
    fake.plane.fault("usage/tokens", CallFault::Refuse(500), 12);
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.plane.token_reports(RUN).len(), 1);
}

#[tokio::test]
async fn the_key_of_a_provider_reaches_neither_the_program_nor_anything_it_says() {
    let program = format!(
        "import {{ agent, secrets }} from '@trestle/workflow'; \
         export default async function run() {{ \
           const stolen = await secrets.get('{KEY_NAME}').catch((error) => error.code); \
           const tool = {{ name: 'tell', description: 'tells', inputSchema: {{ type: 'object' }}, handler: async () => 'sk-provider-' + 'key-canary' }}; \
           const answer = await agent('say it', {{ model: 'm', provider: 'mine', builtins: 'none', tools: [tool] }}); \
           console.log('sk-provider-key' + '-canary'); \
           return {{ stolen, names: Object.values(process.env).join(' ').includes('canary') }}; }}"
    );
    let model = model(vec![ScriptTurn::call("tell", json!({})), said("sk-provider-key-canary it is")]).await;
    let fake = run_of(&program, "openai_compatible", &model.openai_url()).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), json!({ "stolen": "FORBIDDEN", "names": false }));
    let told = told(&fake);
    assert!(!told.contains("canary"), "{told}");
    assert!(!told.contains("inference-key"), "{told}");
    let second = model.requests()[1].body.to_string();
    assert!(!second.contains("canary"), "the conversation holds the key: {second}");
}

#[tokio::test]
async fn a_name_that_is_not_known_is_asked_for_once_and_then_called() {
    let model = model(vec![said("one"), said("two")]).await;
    let program = "import { agent } from '@trestle/workflow'; \
        const ask = (prompt) => agent(prompt, { model: 'm', provider: 'mine', builtins: 'none' }); \
        export default async () => (await Promise.all([ask('a'), ask('b')])).sort();";
    let url = model.openai_url();
    let fake = Fake::start(program, Duration::from_secs(60), |run| {
        run.secrets.insert(KEY_NAME.into(), KEY.into());
        run.byo_providers = vec![serde_json::from_value(entry("openai", &url)).unwrap()];
    })
    .await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), json!(["one", "two"]));
    assert!(fake.plane.calls("inference").is_empty(), "one of the two was not called directly");
    assert_eq!(fake.plane.calls("inference/providers").len(), 1);
    assert_eq!(fake.plane.calls("secrets/resolve").len(), 2, "the key is resolved for each call");
}

#[tokio::test]
async fn a_provider_without_a_key_for_this_run_fails_the_turn_with_a_code() {
    let model = model(vec![said("never")]).await;
    let mut fake = Fake::start(ASKS_MINE, Duration::from_secs(60), |_| {}).await;
    fake.byo_providers = vec![entry("openai_compatible", &model.openai_url())];
    let mut process = fake.begin(fake.options()).await;
    assert_eq!(process.outcome().await, SlotOutcome::Failed { code: "NOT_FOUND".into() });
    let error = fake.error().to_string();
    assert!(!error.contains("inference-key"), "{error}");
    assert!(model.requests().is_empty());
}
