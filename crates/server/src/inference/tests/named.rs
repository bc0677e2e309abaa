//! Turns of providers that a request names.

use super::*;
use crate::providers::place;

impl World {
    /// Configures a provider at an address.
    fn provider(&self, name: &str, source: &str, base_url: Option<&str>, key: Option<&str>) {
        let sealed = key.map(|key| self.vault.seal(&place(name), key).unwrap());
        let row = ProviderRow {
            name: name.to_owned(),
            source: source.to_owned(),
            base_url: base_url.map(str::to_owned),
            has_key: sealed.is_some(),
            created_at: 0,
        };
        self.book.0.lock().unwrap().insert(name.to_owned(), (row, sealed));
    }

    async fn refused(&self, body: &Value) -> (u16, Value) {
        let response = send(&self.url, "run1", body).await;
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
    }
}

#[tokio::test]
async fn a_named_provider_answers_with_its_own_address_key_and_wire() {
    for (source, header) in
        [("openai_compatible", "authorization"), ("google", "authorization"), ("anthropic", "x-api-key")]
    {
        let world = world(Script::of(vec![ScriptTurn::text("from the named one")])).await;
        let other = ModelServer::start(Script::of(vec![ScriptTurn::text("from the default")])).await.unwrap();
        let url = if source == "anthropic" { world.model.url() } else { world.model.openai_url() };
        world.provider("mine", source, Some(&url), Some("sk-named"));
        let config = ModelConfig { url: Some(other.openai_url()), ..world.config.clone() };
        let relay =
            Relay::with_ledger(&config, world.rows.clone(), world.book.clone(), Arc::clone(&world.vault));
        let url = serve(Arc::new(relay.unwrap())).await;
        let frames = ask(&url, "run1", &question(&json!({ "provider": "mine", "model": "a/b:c" }))).await;
        let result = result(&frames);
        assert_eq!(result.turn.text, "from the named one");
        // Run processes call Google's models through the relay alone; the others also themselves.
        let account = if source == "google" { "mine/a/b:c" } else { "boardwalk/mine/a/b:c" };
        assert_eq!(result.model_ref, account);
        assert_eq!(world.rows.all()[0].model, account);
        let request = &world.model.requests()[0];
        assert_eq!(request.body["model"], "a/b:c");
        assert!(request.headers[header].ends_with("sk-named"), "{:?}", request.headers);
        assert!(other.requests().is_empty());
    }
}

#[tokio::test]
async fn what_no_provider_answers_is_refused_before_any_call() {
    let world = world(Script::of(vec![])).await;
    let url = world.model.openai_url();
    world.provider("mine", "openai_compatible", Some(&url), None);
    world.provider("rock", "bedrock", Some(&url), None);
    world.provider("nowhere", "azure_openai", None, Some("k"));
    for body in [
        json!({ "provider": "openai", "model": "m" }),
        json!({ "provider": "Boardwalk" }),
        json!({ "provider": "mine" }),
        json!({ "provider": "mine", "model": "auto" }),
        json!({ "provider": "rock", "model": "m" }),
        json!({ "provider": "nowhere", "model": "m" }),
        json!({ "provider": "mine", "model": "m", "desktopSession": true }),
        json!({ "desktopSession": true }),
    ] {
        let (status, answer) = world.refused(&question(&body)).await;
        assert_eq!((status, &answer["error"]["code"]), (422, &json!("MODEL_UNRESOLVED")), "{body}");
    }
    assert!(world.model.requests().is_empty() && world.rows.all().is_empty());
}

#[tokio::test]
async fn a_key_of_another_place_opens_nothing_and_its_failure_names_no_key() {
    let world = world(Script::of(vec![])).await;
    let url = world.model.openai_url();
    world.provider("mine", "openai_compatible", Some(&url), Some("sk-canary"));
    let moved = world.book.0.lock().unwrap()["mine"].clone();
    world
        .book
        .0
        .lock()
        .unwrap()
        .insert("theirs".to_owned(), (ProviderRow { name: "theirs".to_owned(), ..moved.0 }, moved.1));
    let (status, answer) = world.refused(&question(&json!({ "provider": "theirs", "model": "m" }))).await;
    assert_eq!((status, &answer["error"]["code"]), (500, &json!("INTERNAL_ERROR")));
    assert!(!answer.to_string().contains("canary") && world.model.requests().is_empty());
}

#[tokio::test]
async fn turns_of_the_own_endpoint_never_look_like_those_of_a_direct_provider() {
    let world = world(Script::of(vec![ScriptTurn::text("a"), ScriptTurn::text("b")])).await;
    let frames = ask(&world.url, "run1", &question(&json!({}))).await;
    assert_eq!(result(&frames).model_ref, "openai_compatible/scripted");
    world.provider("openai_compatible", "openai_compatible", Some("http://127.0.0.1:1/v1"), None);
    let frames = ask(&world.url, "run1", &question(&json!({}))).await;
    assert_eq!(result(&frames).model_ref, "boardwalk/scripted");
}
