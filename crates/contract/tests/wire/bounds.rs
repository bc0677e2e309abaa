//! Bounds of texts, integers, identifiers, URLs; error codes.

use trestle_contract::error::is_error_code;
use trestle_contract::pool::{AbsoluteUrl, Label, RegisterRequest};
use trestle_contract::{
    BoundedInt, Count, Digest, EpochMs, ErrorBody, ErrorCode, MAX_SAFE_INTEGER, NonEmptyString, Positive,
    RunId, Token,
};

#[test]
fn lengths_count_utf16_code_units() {
    assert!(Label::new("😀".repeat(60)).is_ok());
    assert!(Label::new("😀".repeat(61)).is_err());
    assert!(Label::new("é".repeat(120)).is_ok());
    assert!(Label::new("").is_err());
    assert!(RunId::new("😀".repeat(64)).is_ok());
    assert!(RunId::new("😀".repeat(65)).is_err());
    assert!(RunId::new("").is_err());
}

#[test]
fn integers_are_whole_and_safe() {
    let read = |text: &str| serde_json::from_str::<EpochMs>(text).map(EpochMs::get).ok();
    assert_eq!(read("0"), Some(0));
    assert_eq!(read("1.0"), Some(1));
    assert_eq!(read("1e3"), Some(1000));
    assert_eq!(read("9007199254740991"), Some(MAX_SAFE_INTEGER));
    for text in ["9007199254740992", "-1", "1.5", "\"1\"", "null", "true", "18446744073709551616", "1e400"] {
        assert_eq!(read(text), None, "{text}");
    }
    assert!(serde_json::from_str::<Positive>("0").is_err());
    assert!(serde_json::from_str::<BoundedInt<1, 300>>("301").is_err());
    assert_eq!(Count::saturating_signed(-5).get(), 0);
    assert_eq!(Count::saturating(u64::MAX).get(), MAX_SAFE_INTEGER);
    assert_eq!(Positive::saturating(0).get(), 1);
    assert_eq!(Positive::default().get(), 1);
    assert_eq!(EpochMs::saturating(MAX_SAFE_INTEGER).get_signed(), 9_007_199_254_740_991);
}

#[test]
fn urls_are_absolute_by_the_rules_of_browsers() {
    for text in
        ["ftp://x", "file:///x", "mailto:a", "localhost:3000", " https://a.b/c ", "http://127.0.0.1:7070"]
    {
        assert_eq!(AbsoluteUrl::new(text).unwrap().as_str(), text.trim(), "{text}");
    }
    for text in ["api.x", "//x", "https://", "https://a b/", "", "/path"] {
        assert!(AbsoluteUrl::new(text).is_err(), "{text}");
    }
}

#[test]
fn at_most_thirty_two_labels_register() {
    let body = |labels: usize| {
        let labels: Vec<_> = (0..labels).map(|_| "\"same\"").collect();
        format!(r#"{{"registration_token":"t","name":"n","labels":[{}]}}"#, labels.join(","))
    };
    assert_eq!(serde_json::from_str::<RegisterRequest>(&body(32)).unwrap().labels.len(), 32);
    assert!(serde_json::from_str::<RegisterRequest>(&body(33)).is_err());
    let absent: RegisterRequest = serde_json::from_str(r#"{"registration_token":"t","name":"n"}"#).unwrap();
    assert!(absent.labels.is_empty());
    assert!(serde_json::from_str::<RegisterRequest>(r#"{"registration_token":"","name":"n"}"#).is_err());
    assert!(
        serde_json::from_str::<RegisterRequest>(r#"{"registration_token":"t","name":"n","os":"beos"}"#)
            .is_err()
    );
}

#[test]
fn digests_are_sixty_four_digits_in_lower_case() {
    let digits = "ab".repeat(32);
    assert_eq!(Digest::new(digits.to_uppercase()).unwrap().as_str(), digits);
    assert_eq!(Digest::from_bytes(&[0xab; 32]).as_str(), digits);
    for text in ["", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64)] {
        assert!(Digest::new(text).is_err(), "{text}");
    }
}

#[test]
fn credentials_do_not_show_in_debug_output() {
    let canary = "canary-4711";
    let token = Token::new(canary).unwrap();
    assert!(!format!("{token:?}").contains(canary));
    assert_eq!(token.expose(), canary);
    let claim: trestle_contract::pool::ControlPlane = serde_json::from_str(
        r#"{"base_url":"http://x","run_token":"canary-4711","api_token":"canary-4711"}"#,
    )
    .unwrap();
    assert!(!format!("{claim:?}").contains(canary));
    let secret: trestle_contract::control::SecretResolveResponse =
        serde_json::from_str(r#"{"value":"canary-4711"}"#).unwrap();
    assert!(!format!("{secret:?}").contains(canary));
    let secret: trestle_contract::host::SecretGetResult =
        serde_json::from_str(r#"{"value":"canary-4711"}"#).unwrap();
    assert!(!format!("{secret:?}").contains(canary));
    let secret: trestle_contract::api::CreateSecretRequest =
        serde_json::from_str(r#"{"name":"N","value":"canary-4711"}"#).unwrap();
    assert!(!format!("{secret:?}").contains(canary));
}

#[test]
fn error_codes_have_one_text_and_one_reference_each() {
    let texts: std::collections::BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let references: std::collections::BTreeSet<_> =
        ErrorCode::ALL.iter().map(|code| code.reference()).collect();
    assert_eq!((texts.len(), references.len()), (ErrorCode::ALL.len(), ErrorCode::ALL.len()));
    for code in ErrorCode::ALL {
        assert!(is_error_code(code.as_str()), "{code}");
        assert_eq!(ErrorCode::from_code(code.as_str()), Some(*code));
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert!((400..=503).contains(&code.status()), "{code}");
        assert_eq!(code.reference().len(), 6);
    }
    let fatal: Vec<_> = ErrorCode::ALL.iter().filter(|code| code.is_run_fatal()).collect();
    assert_eq!(fatal, [&ErrorCode::BudgetExceeded, &ErrorCode::Cancelled]);
    for text in ["", "lower", "1A", "A-B", "A B", &"A".repeat(65)] {
        assert!(!is_error_code(text), "{text}");
    }
    assert!(is_error_code("ENOENT") && is_error_code(&"A".repeat(64)));
    assert_eq!(ErrorBody::new(ErrorCode::NotFound, "m").known(), Some(ErrorCode::NotFound));
    assert_eq!(NonEmptyString::saturating("").as_str(), "-");
}
