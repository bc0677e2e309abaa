use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::Deserialize;
use trestle_contract::error::ErrorCode;
use url::Url;

use crate::CliError;

/// Which server a command talks to, and with which token.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// Origin with an optional path prefix, without a trailing slash.
    pub url: String,
    /// Bearer of every call.
    pub token: SecretString,
}

/// What the command line and the environment say about the server.
#[derive(Debug, Clone, Default)]
pub struct AddressSources {
    /// `--url`.
    pub url: Option<String>,
    /// `--token`.
    pub token: Option<String>,
    /// Looks up an environment variable.
    pub environment: std::collections::BTreeMap<String, String>,
    /// The data directory that is tried last.
    pub data: PathBuf,
}

/// `server.json` of a data directory.
#[derive(Deserialize)]
struct ServerFile {
    url: String,
}

impl AddressSources {
    /// Finds the server: `--url` and `--token`, then `TRESTLE_URL` and `TRESTLE_TOKEN`, then
    /// `BOARDWALK_API_URL` and `BOARDWALK_API_KEY`, then the data directory. An address without a token
    /// takes the data directory's token only if that directory's server is the one addressed.
    ///
    /// # Errors
    /// When no server or no token is found; the hint names the ways.
    pub fn find(&self) -> Result<ServerAddress, CliError> {
        let from = |name: &str| {
            self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        let url = self.url.as_deref().or_else(|| from("TRESTLE_URL")).or_else(|| from("BOARDWALK_API_URL"));
        let token =
            self.token.as_deref().or_else(|| from("TRESTLE_TOKEN")).or_else(|| from("BOARDWALK_API_KEY"));
        let local = read_local(&self.data);
        let (url, token) = match (url, token, local) {
            (Some(url), Some(token), _) => (url.to_owned(), token.to_owned()),
            (None, Some(token), Some((local, _))) => (local, token.to_owned()),
            (Some(url), None, Some((local, token))) if same_origin(url, &local) => (url.to_owned(), token),
            (Some(url), None, _) => {
                return Err(CliError::new(ErrorCode::Unauthorized, format!("no token for {url}"))
                    .hint("set TRESTLE_TOKEN or give --token; the server's own is in its data directory, file admin-token"));
            }
            (None, _, None) => {
                return Err(CliError::new(ErrorCode::NotFound, format!("no server: {} holds none", self.data.display()))
                    .hint("start one with `trestle up`, or name one with --url and --token (TRESTLE_URL, TRESTLE_TOKEN)"));
            }
            (None, None, Some((local, token))) => (local, token),
        };
        let parsed = Url::parse(&url)
            .ok()
            .filter(|parsed| matches!(parsed.scheme(), "http" | "https") && parsed.has_host());
        if parsed.is_none() {
            return Err(CliError::usage(format!("{url} is no http or https address"))
                .hint("for example http://127.0.0.1:7070"));
        }
        Ok(ServerAddress { url: url.trim_end_matches('/').to_owned(), token: SecretString::from(token) })
    }
}

fn same_origin(left: &str, right: &str) -> bool {
    matches!((Url::parse(left), Url::parse(right)), (Ok(left), Ok(right)) if left.origin() == right.origin())
}

fn read_local(data: &Path) -> Option<(String, String)> {
    let server: ServerFile = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
    let token = std::fs::read_to_string(data.join("admin-token")).ok()?;
    Some((server.url, token.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn sources(data: &Path, entries: &[(&str, &str)]) -> AddressSources {
        AddressSources {
            environment: entries
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            data: data.to_owned(),
            ..AddressSources::default()
        }
    }

    fn local() -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(
            data.path().join("server.json"),
            r#"{"url":"http://127.0.0.1:7070","pid":1,"version":"0"}"#,
        )
        .unwrap();
        std::fs::write(data.path().join("admin-token"), "bwk_local\n").unwrap();
        data
    }

    #[test]
    fn the_order_of_the_sources_is_kept() {
        let data = local();
        let both = [
            ("TRESTLE_URL", "http://a/"),
            ("TRESTLE_TOKEN", "t"),
            ("BOARDWALK_API_URL", "http://b"),
            ("BOARDWALK_API_KEY", "k"),
        ];
        let found = |sources: AddressSources| {
            let found = sources.find().unwrap();
            (found.url, found.token.expose_secret().to_owned())
        };
        let mut flags = sources(data.path(), &both);
        (flags.url, flags.token) = (Some("https://c/p/".into()), Some("f".into()));
        assert_eq!(found(flags), ("https://c/p".into(), "f".into()));
        assert_eq!(found(sources(data.path(), &both)), ("http://a".into(), "t".into()));
        assert_eq!(found(sources(data.path(), &both[2..])), ("http://b".into(), "k".into()));
        assert_eq!(found(sources(data.path(), &[])), ("http://127.0.0.1:7070".into(), "bwk_local".into()));
        assert_eq!(
            found(sources(data.path(), &[("TRESTLE_URL", "  ")])),
            ("http://127.0.0.1:7070".into(), "bwk_local".into())
        );
    }

    #[test]
    fn a_local_token_is_not_sent_to_another_server() {
        let data = local();
        let error = sources(data.path(), &[("TRESTLE_URL", "http://elsewhere:7070")]).find().unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthorized);
        let same = sources(data.path(), &[("TRESTLE_URL", "http://127.0.0.1:7070/")]).find().unwrap();
        assert_eq!(same.token.expose_secret(), "bwk_local");
    }

    #[test]
    fn without_any_server_the_hint_says_how_to_start_one() {
        let empty = tempfile::tempdir().unwrap();
        let error = sources(empty.path(), &[]).find().unwrap_err();
        assert!(error.hint.unwrap().contains("trestle up"));
        let error = sources(empty.path(), &[("TRESTLE_URL", "localhost:7070"), ("TRESTLE_TOKEN", "t")])
            .find()
            .unwrap_err();
        assert_eq!(error.exit, crate::EXIT_USAGE);
    }
}
