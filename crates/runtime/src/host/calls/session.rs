//! `bootstrap`, `report_return`, `phase`, `secrets.get`, `auth.apiToken`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use trestle_contract::event::EventBody;
use trestle_contract::host::{
    Empty, PhaseParams, ReportReturnParams, SecretGetParams, SecretGetResult, TokenResult,
};
use trestle_contract::{ErrorCode, NonEmptyString, RawJson, SecretName, Token};

use super::super::connection::Peer;
use super::{Capabilities, HostFailure, encoded};
use crate::inference::is_provider_key;

impl Capabilities {
    /// Input and result belong to the program's own process: a command that it started may reach the
    /// socket too, and must not end the run with a value of its own.
    fn check_is_program(&self, peer: &Arc<Peer>) -> Result<(), HostFailure> {
        if self.program.get() == Some(&peer.pid) {
            return Ok(());
        }
        Err(HostFailure::new(ErrorCode::Forbidden, "only the program's own process may ask this")
            .with_hint("call it from the process that runs the program, not from one that it started"))
    }

    pub(super) fn bootstrap(&self, peer: &Arc<Peer>) -> Result<RawJson, HostFailure> {
        self.check_is_program(peer)?;
        self.bootstrapped.send_replace(true);
        Ok(self.facts.bootstrap.clone())
    }

    pub(super) fn report_return(
        &self,
        params: ReportReturnParams,
        peer: &Arc<Peer>,
    ) -> Result<RawJson, HostFailure> {
        self.check_is_program(peer)?;
        let checked = self.facts.output_schema.check(&params.value);
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        match checked {
            Ok(()) => {
                returned.accepted = Some(params.value);
                returned.refused = None;
                encoded(&Empty {})
            }
            // What was accepted before stays accepted.
            Err(failure) => {
                returned.refused = Some(failure.0.clone());
                Err(failure)
            }
        }
    }

    /// A phase marker: everything after it belongs to it. One that makes no sense is left out.
    pub(crate) fn mark_phase(&self, params: Option<&RawJson>) {
        let Some(Ok(params)) = params.map(RawJson::decode::<PhaseParams>) else {
            tracing::debug!("a phase marker without a name was left out");
            return;
        };
        let Ok(name) = NonEmptyString::new(params.name.as_str().trim()) else { return };
        if self.check_alive().is_err() {
            return;
        }
        let number = self.phases.fetch_add(1, Ordering::Relaxed) + 1;
        let own =
            params.opts.and_then(|opts| opts.id).and_then(|id| NonEmptyString::new(id.as_str().trim()).ok());
        let id = own.unwrap_or_else(|| NonEmptyString::saturating(format!("phase-{number}")));
        self.emitter.emit(EventBody::Phase { name, id });
    }

    pub(super) async fn secret(&self, params: SecretGetParams) -> Result<SecretGetResult, HostFailure> {
        let value = resolve_secret(self.control.clone(), params.name.as_str()).await?;
        // Known before anybody can show it.
        self.emitter.redactor().add(params.name.as_str(), &value);
        Ok(SecretGetResult { value })
    }

    pub(super) fn api_token(&self) -> Result<TokenResult, HostFailure> {
        let token = self.facts.api_token.as_ref().and_then(|token| Token::new(token.clone()).ok());
        token.map(|token| TokenResult { token }).ok_or_else(|| {
            HostFailure::new(ErrorCode::Forbidden, "this run has no token for the public API")
                .with_hint("grant the permissions that the program needs in its descriptor")
        })
    }
}

/// The value of a secret; refusals name the secret and what to do.
pub(crate) async fn resolve_secret(
    control: crate::control::ControlClient,
    name: &str,
) -> Result<String, HostFailure> {
    if is_provider_key(name) {
        let what = "a program may not read the key of a model provider";
        return Err(HostFailure::new(ErrorCode::Forbidden, what)
            .with_hint("name the provider in agent(): its calls are made with the key"));
    }
    let wire_name = SecretName::new(name)
        .map_err(|error| HostFailure::invalid(format!("{name:?} is no name of a secret: {error}")))?;
    let error = match control.secret(wire_name).await {
        Ok(answer) => return Ok(answer.value),
        Err(error) => error,
    };
    let hint = error.body().and_then(|body| body.hint.clone());
    let failure = match error.status() {
        Some(404) => HostFailure::new(ErrorCode::NotFound, format!("the secret {name} has no value"))
            .with_hint(hint.unwrap_or_else(|| format!("set it with `trestle secrets set {name}`"))),
        Some(403) => HostFailure::new(ErrorCode::Forbidden, format!("the workflow may not read the secret {name}"))
            .with_hint(hint.unwrap_or_else(|| {
                format!("list {{\"name\": \"{name}\"}} under \"permissions.secrets\" in the descriptor and deploy again")
            })),
        _ => HostFailure::from(error),
    };
    Err(failure)
}
