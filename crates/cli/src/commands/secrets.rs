use std::io::Read;
use std::path::PathBuf;

use serde_json::value::RawValue;
use trestle_contract::api::{
    CreateSecretRequest, RotateSecretRequest, SecretKind, SecretList, SecretResponse, SecretRow, SecretScope,
};
use trestle_contract::error::ErrorCode;
use trestle_contract::ids::SecretName;

use crate::client::segment;
use crate::commands::{print, table};
use crate::{CliError, Client, Terminal};

/// Longest value of a secret, in bytes.
const MAX_VALUE: u64 = 1024 * 1024;

/// `trestle secrets`
#[derive(Debug, clap::Args)]
pub struct SecretsCommand {
    /// What to do; lists secrets by default.
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the names of secrets; values are never shown.
    List,
    /// Set a secret; the value comes from standard input unless a file is named.
    Set {
        /// Name, as programs ask for it.
        name: String,
        /// File that holds the value.
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a secret.
    Delete {
        /// Name.
        name: String,
    },
}

/// `trestle secrets`.
///
/// # Errors
/// When the value cannot be read, the secret is unknown, or the server cannot be reached.
pub async fn secrets(terminal: &Terminal, client: &Client, command: &SecretsCommand) -> Result<u8, CliError> {
    match &command.action {
        None | Some(Action::List) => list(terminal, client, command.json).await?,
        Some(Action::Set { name, from_file, description }) => {
            let value = read_value(from_file.as_deref())?;
            let made = set_secret(client, name, value, description.clone()).await?;
            print(terminal, &format!("{} {name}", if made { "set" } else { "replaced" }))?;
        }
        Some(Action::Delete { name }) => {
            let row = find(client, name).await?.ok_or_else(|| unknown(name))?;
            client.delete(&format!("/v1/secrets/{}", segment(row.id.as_str()))).await?;
            print(terminal, &format!("deleted {name}"))?;
        }
    }
    Ok(crate::EXIT_COMPLETED)
}

/// Sets or replaces a secret of the organisation; true when it is new.
///
/// # Errors
/// When the name is no secret name or the server refuses.
pub async fn set_secret(
    client: &Client,
    name: &str,
    value: String,
    description: Option<String>,
) -> Result<bool, CliError> {
    let name = SecretName::new(name)
        .map_err(|error| CliError::usage(format!("{name} cannot name a secret: {error}")))?;
    let organisation = client.organisation().await?;
    let request = CreateSecretRequest {
        name: name.clone(),
        value: value.clone(),
        scope: SecretScope::Org,
        kind: SecretKind::ApiKey,
        description,
        environment_id: None,
    };
    let made: Result<SecretResponse, CliError> =
        client.post(&format!("/v1/orgs/{}/secrets", segment(&organisation)), &request).await;
    match made {
        Ok(_) => Ok(true),
        Err(error) if error.code == ErrorCode::Conflict => {
            let row = find(client, name.as_str()).await?.ok_or(error)?;
            let path = format!("/v1/secrets/{}/rotate", segment(row.id.as_str()));
            let _: SecretResponse = client.post(&path, &RotateSecretRequest { value }).await?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

async fn all(client: &Client) -> Result<SecretList, CliError> {
    client.get(&format!("/v1/orgs/{}/secrets", segment(&client.organisation().await?))).await
}

async fn find(client: &Client, name: &str) -> Result<Option<SecretRow>, CliError> {
    let list = all(client).await?;
    Ok(list.secrets.into_iter().find(|row| row.name.as_str() == name && row.environment_id.is_none()))
}

fn unknown(name: &str) -> CliError {
    CliError::new(ErrorCode::NotFound, format!("no secret {name}"))
        .hint("`trestle secrets list` shows the names")
}

async fn list(terminal: &Terminal, client: &Client, json: bool) -> Result<(), CliError> {
    if json {
        let path = format!("/v1/orgs/{}/secrets", segment(&client.organisation().await?));
        let body: Box<RawValue> = client.get(&path).await?;
        return print(terminal, &crate::pretty_json(body.get()));
    }
    let list = all(client).await?;
    if list.secrets.is_empty() {
        terminal.note("no secrets; `trestle secrets set NAME` adds one");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = list
        .secrets
        .iter()
        .map(|row| vec![row.name.to_string(), row.description.clone().unwrap_or_default()])
        .collect();
    print(terminal, &table(&rows))
}

/// Reads a value; exactly one trailing line end is not part of it.
pub(super) fn read_value(file: Option<&std::path::Path>) -> Result<String, CliError> {
    let (what, mut source): (String, Box<dyn Read>) = match file {
        Some(file) => {
            let opened = std::fs::File::open(file)
                .map_err(|error| CliError::usage(format!("cannot read {}: {error}", file.display())))?;
            (file.display().to_string(), Box::new(opened))
        }
        None => ("standard input".to_owned(), Box::new(std::io::stdin())),
    };
    let mut text = String::new();
    source
        .by_ref()
        .take(MAX_VALUE + 1)
        .read_to_string(&mut text)
        .map_err(|error| CliError::usage(format!("cannot read the value from {what}: {error}")))?;
    if text.len() as u64 > MAX_VALUE {
        return Err(CliError::usage("the value is larger than 1 MiB"));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err(CliError::usage("the value is empty")
            .hint("pipe it in: printf %s \"$VALUE\" | trestle secrets set NAME"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_not_part_of_a_value() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (written, value) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("-----\nb\n-----\n", "-----\nb\n-----"),
            (" a ", " a "),
        ] {
            std::fs::write(file.path(), written).unwrap();
            assert_eq!(read_value(Some(file.path())).unwrap(), value);
        }
        for empty in ["", "\n"] {
            std::fs::write(file.path(), empty).unwrap();
            assert_eq!(read_value(Some(file.path())).unwrap_err().exit, crate::EXIT_USAGE);
        }
    }
}
