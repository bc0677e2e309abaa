use std::path::Path;

use serde_json::value::RawValue;
use trestle_contract::api::{
    CreateProviderRequest, ProviderList, ProviderResponse, ProviderRow, ProviderSource,
};
use trestle_contract::bounds::{BoundedString, Token};
use trestle_contract::error::ErrorCode;

use super::secrets::read_value;
use crate::client::segment;
use crate::commands::{nearest, print, table};
use crate::{CliError, Client, Terminal};

/// `trestle inference`
#[derive(Debug, clap::Args)]
pub struct InferenceCommand {
    /// What to do; lists model providers by default.
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List model providers; keys are never shown.
    List,
    /// Add a model provider that programs name: agent({ provider: NAME, model })
    Add {
        /// Name, as programs use it.
        name: String,
        /// Who serves its models.
        #[arg(long, value_parser = source, value_name = "SOURCE")]
        source: ProviderSource,
        /// Address; default: the vendor's own. With an address, runners call it themselves.
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
        /// Where its key is: `-` for standard input, `@FILE`, or `env:NAME`; never the key itself.
        #[arg(long, value_name = "WHERE")]
        api_key: Option<String>,
    },
    /// Delete a model provider and its key.
    Delete {
        /// Name.
        name: String,
    },
}

/// Where a key is read from. A key on the command line could be read by every user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyPlace {
    Input,
    File(std::path::PathBuf),
    Variable(String),
}

fn source(word: &str) -> Result<ProviderSource, String> {
    ProviderSource::from_name(word).ok_or_else(|| {
        let names = ProviderSource::ALL.map(ProviderSource::as_str).join(", ");
        format!("the sources are {names}")
    })
}

/// Not a parser of the command line's: that one repeats what it refuses, and this may be the key itself.
fn key_place(text: &str) -> Result<KeyPlace, CliError> {
    if text == "-" {
        return Ok(KeyPlace::Input);
    }
    if let Some(file) = text.strip_prefix('@').filter(|file| !file.is_empty()) {
        return Ok(KeyPlace::File(file.into()));
    }
    if let Some(variable) = text.strip_prefix("env:").filter(|variable| !variable.is_empty()) {
        return Ok(KeyPlace::Variable(variable.to_owned()));
    }
    Err(CliError::usage("--api-key says where the key is, not what it is")
        .hint("use - for standard input, @FILE or env:NAME; a key on the command line shows in the list of processes"))
}

/// `trestle inference`.
///
/// # Errors
/// When the key cannot be read, the server refuses, or it cannot be reached.
pub async fn inference(
    terminal: &Terminal,
    client: &Client,
    command: &InferenceCommand,
) -> Result<u8, CliError> {
    let path = format!("/v1/orgs/{}/inference-providers", segment(&client.organisation().await?));
    match &command.action {
        None | Some(Action::List) => list(terminal, client, &path, command.json).await?,
        Some(Action::Add { name, source, base_url, api_key }) => {
            let request = CreateProviderRequest {
                name: BoundedString::new(name.as_str())
                    .map_err(|error| CliError::usage(format!("{name} cannot name a provider: {error}")))?,
                source: *source,
                base_url: base_url.clone(),
                region: None,
                api_version: None,
                api_key: api_key.as_deref().map(key_place).transpose()?.as_ref().map(read_key).transpose()?,
                extra_headers: None,
            };
            if command.json {
                let body: Box<RawValue> = client.post(&path, &request).await?;
                print(terminal, &crate::pretty_json(body.get()))?;
            } else {
                let answer: ProviderResponse = client.post(&path, &request).await?;
                print(terminal, &added(&answer.provider))?;
            }
        }
        Some(Action::Delete { name }) => delete(terminal, client, &path, name).await?,
    }
    Ok(crate::EXIT_COMPLETED)
}

fn read_key(place: &KeyPlace) -> Result<Token, CliError> {
    let text = match place {
        KeyPlace::Input => read_value(None)?,
        KeyPlace::File(file) => read_value(Some(Path::new(file)))?,
        KeyPlace::Variable(name) => std::env::var(name)
            .map_err(|_| CliError::usage(format!("the variable {name} is not set, or is no text")))?,
    };
    Token::new(text.trim()).map_err(|_| CliError::usage("the key is empty"))
}

fn added(row: &ProviderRow) -> String {
    format!("added {}: agent({{ provider: \"{}\", model }}) calls {}", row.name, row.name, way(row))
}

/// Who calls a provider, and where.
fn way(row: &ProviderRow) -> String {
    let direct = ProviderSource::from_name(&row.source).is_some_and(ProviderSource::is_direct);
    match &row.base_url {
        Some(url) if direct => format!("{url} from the runner"),
        Some(url) => format!("{url} through the server"),
        None => format!("{} through the server", row.source),
    }
}

async fn list(terminal: &Terminal, client: &Client, path: &str, json: bool) -> Result<(), CliError> {
    if json {
        let body: Box<RawValue> = client.get(path).await?;
        return print(terminal, &crate::pretty_json(body.get()));
    }
    let list: ProviderList = client.get(path).await?;
    if list.providers.is_empty() {
        terminal.note("no model providers; `trestle inference add NAME --source SOURCE` adds one");
        return Ok(());
    }
    print(terminal, &listed(&list.providers))
}

fn listed(providers: &[ProviderRow]) -> String {
    let rows: Vec<Vec<String>> = providers
        .iter()
        .map(|row| {
            let key = if row.has_api_key { "key" } else { "no key" };
            vec![row.name.clone(), row.source.clone(), key.to_owned(), way(row)]
        })
        .collect();
    table(&rows)
}

async fn delete(terminal: &Terminal, client: &Client, path: &str, name: &str) -> Result<(), CliError> {
    match client.delete(&format!("{path}/{}", segment(name))).await {
        Err(error) if error.code == ErrorCode::NotFound => {
            let list: ProviderList = client.get(path).await?;
            let near = nearest(name, list.providers.iter().map(|row| row.name.as_str()));
            let unknown = CliError::new(ErrorCode::NotFound, format!("no model provider {name}"));
            Err(match near {
                Some(near) => unknown.hint(format!("did you mean {near}?")),
                None => unknown.hint("`trestle inference list` shows them"),
            })
        }
        other => {
            other?;
            print(terminal, &format!("deleted {name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, source: &str, base_url: Option<&str>, has_api_key: bool) -> ProviderRow {
        ProviderRow {
            name: name.to_owned(),
            source: source.to_owned(),
            base_url: base_url.map(str::to_owned),
            region: None,
            has_api_key,
            billed_by_boardwalk: false,
            created_at: None,
        }
    }

    #[test]
    fn a_key_is_named_by_its_place_and_never_by_itself() {
        let place = |text| key_place(text).unwrap();
        assert_eq!(place("-"), KeyPlace::Input);
        assert_eq!(place("@/run/key"), KeyPlace::File("/run/key".into()));
        assert_eq!(place("env:OPENAI_API_KEY"), KeyPlace::Variable("OPENAI_API_KEY".to_owned()));
        for refused in ["sk-canary", "", "@", "env:"] {
            let error = key_place(refused).unwrap_err();
            assert_eq!(error.exit, crate::EXIT_USAGE);
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn a_key_is_read_without_the_line_end_of_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "  sk-1\r\n").unwrap();
        let key = read_key(&KeyPlace::File(file.path().to_owned())).unwrap();
        assert_eq!(key.expose(), "sk-1");
        std::fs::write(file.path(), " \n").unwrap();
        assert!(read_key(&KeyPlace::File(file.path().to_owned())).is_err());
        assert!(read_key(&KeyPlace::Variable("TRESTLE_NO_SUCH_VARIABLE".to_owned())).is_err());
    }

    #[test]
    fn the_list_says_who_calls_what() {
        insta::assert_snapshot!(listed(&[
            row("anthropic", "anthropic", None, true),
            row("gemini", "google", Some("https://g.example/openai"), true),
            row("my-vllm", "openai_compatible", Some("http://10.0.0.5:8000/v1"), false),
        ]));
    }

    #[test]
    fn what_was_added_is_shown_as_a_program_uses_it() {
        insta::assert_snapshot!(added(&row(
            "my-vllm",
            "openai_compatible",
            Some("http://10.0.0.5:8000/v1"),
            false
        )));
    }
}
