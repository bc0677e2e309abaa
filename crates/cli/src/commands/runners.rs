use serde_json::value::RawValue;
use trestle_contract::ErrorCode;
use trestle_contract::api::{
    EnrolRunnerRequest, EnrolRunnerResponse, PoolList, RegistrationToken, RunnerList,
};

use crate::client::segment;
use crate::commands::{print, table};
use crate::renderer::instant;
use crate::{CliError, Client, Terminal};

/// `trestle runners`: lists runners.
///
/// # Errors
/// When the server cannot be reached.
pub async fn runners(terminal: &Terminal, client: &Client, json: bool) -> Result<u8, CliError> {
    let organisation = segment(&client.organisation().await?);
    let path = format!("/v1/orgs/{organisation}/runners");
    let pools_path = format!("/v1/orgs/{organisation}/runner-pools");
    if json {
        let runners: RowsOf = client.get(&path).await?;
        let pools: RowsOf = client.get(&pools_path).await?;
        super::print_json(terminal, &RowsOf { runners: runners.runners, pools: pools.pools })?;
        return Ok(crate::EXIT_COMPLETED);
    }
    let list: RunnerList = client.get(&path).await?;
    if list.runners.is_empty() {
        terminal.note("no runners; `trestle runner token` starts adding one");
        return Ok(crate::EXIT_COMPLETED);
    }
    let pools: PoolList = client.get(&pools_path).await?;
    let rows: Vec<Vec<String>> = list
        .runners
        .iter()
        .map(|row| {
            let pool = pools
                .pools
                .iter()
                .find(|pool| pool.id == row.pool_id)
                .map_or_else(|| row.pool_id.to_string(), |pool| pool.name.clone());
            let seen = row.last_seen_at.map_or_else(|| "never".to_owned(), |at| instant(at.get_signed()));
            let labels =
                if row.labels.is_empty() { String::new() } else { format!("[{}]", row.labels.join(",")) };
            let machine = format!("{}/{}", wire_name(&row.os), wire_name(&row.arch));
            vec![
                wire_name(&row.status),
                row.name.clone(),
                format!("pool={pool}"),
                machine,
                format!("seen={seen}"),
                row.id.to_string(),
                labels,
                row.drain_reason.as_ref().map(|reason| format!("({reason})")).unwrap_or_default(),
            ]
        })
        .collect();
    print(terminal, &table(&rows))?;
    Ok(crate::EXIT_COMPLETED)
}

/// The rows of one of the two lists, as the server wrote them.
#[derive(serde::Serialize, serde::Deserialize)]
struct RowsOf {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runners: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pools: Option<Box<RawValue>>,
}

/// Enrols a runner without a registration token.
///
/// # Errors
/// When a member does not fit or the server refuses.
pub async fn enrol_runner(
    client: &Client,
    organisation: &str,
    request: &EnrolRunnerRequest,
) -> Result<EnrolRunnerResponse, CliError> {
    client.post(&format!("/v1/orgs/{}/runners", segment(organisation)), request).await
}

/// Removes a runner; one that is gone already counts as removed.
///
/// # Errors
/// When the server refuses or cannot be reached.
pub async fn delete_runner(client: &Client, runner: &str) -> Result<(), CliError> {
    match client.delete(&format!("/v1/runners/{}", segment(runner))).await {
        Err(error) if error.code == ErrorCode::NotFound => Ok(()),
        other => other,
    }
}

/// `trestle runner drain|resume ID`.
///
/// # Errors
/// When there is no such runner, or the server cannot be reached.
pub async fn change_runner(
    terminal: &Terminal,
    client: &Client,
    runner: &str,
    drain: bool,
) -> Result<u8, CliError> {
    let action = if drain { "drain" } else { "resume" };
    client.act(&format!("/v1/runners/{}/{action}", segment(runner))).await?;
    terminal.note(if drain {
        "it finishes what it has, claims nothing more and ends"
    } else {
        "it may claim again; start it if it ended"
    });
    Ok(crate::EXIT_COMPLETED)
}

/// The wire name of an enumeration's value.
fn wire_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(ToOwned::to_owned))
        .unwrap_or_else(|| "?".to_owned())
}

/// Mints a registration token of a pool; the pool is made if it is not there.
///
/// # Errors
/// When the pool's name does not fit or the server refuses.
pub async fn mint_registration_token(client: &Client, pool: &str) -> Result<String, CliError> {
    Ok(mint(client, pool).await?.registration_token.expose().to_owned())
}

async fn mint(client: &Client, pool: &str) -> Result<RegistrationToken, CliError> {
    let organisation = segment(&client.organisation().await?);
    let path = format!("/v1/orgs/{organisation}/runner-pools/{}/registration-tokens", segment(pool));
    client.post(&path, &serde_json::json!({})).await
}

/// `trestle runner token`: mints a registration token and prints the line that uses it.
///
/// # Errors
/// As [`mint_registration_token`].
pub async fn runner_token(
    terminal: &Terminal,
    client: &Client,
    pool: &str,
    json: bool,
) -> Result<u8, CliError> {
    let token = mint(client, pool).await?;
    if json {
        super::print_json(terminal, &token)?;
        return Ok(crate::EXIT_COMPLETED);
    }
    print(terminal, token.registration_token.expose())?;
    terminal.note(&format!(
        "valid once, until {}. On the runner's machine:",
        instant(token.expires_at.get_signed())
    ));
    terminal.note(&format!(
        "  trestle runner register --url {} --token {}",
        client.url(),
        token.registration_token.expose()
    ));
    Ok(crate::EXIT_COMPLETED)
}
