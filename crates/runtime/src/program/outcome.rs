//! From what is known after a program's end to how its run ends (`docs/protocol/host.md` §11.4).
//!
//! A program that ends by itself has an outcome, also when that is a failure: it threw, exited or never
//! settled. A program whose process was killed from outside has none. Its run is given back and tried
//! again, until the attempts are used up: a machine out of memory says nothing about the program.

use trestle_contract::control::RunError;
use trestle_contract::error::is_error_code;
use trestle_contract::host::HostErrorBody;
use trestle_contract::{ErrorCode, RawJson};
use trestle_sandbox::Exit;

use super::loader::LoaderFailure;

/// What is known after the end of a program.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// The return value that was accepted last.
    pub(crate) returned: Option<RawJson>,
    /// Why the last return value was refused.
    pub(crate) refused: Option<HostErrorBody>,
    /// What the loader reported.
    pub(crate) failure: Option<LoaderFailure>,
    /// How the process ended.
    pub(crate) exit: Option<Exit>,
    /// The last line on stderr that was not blank.
    pub(crate) last_line: Option<String>,
    /// The budget that was passed at a park point.
    pub(crate) breach: Option<HostErrorBody>,
}

/// How the run ends.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Completed(RawJson),
    Failed(RunError),
    /// The process was killed: the run is given back.
    Crashed(String),
}

/// Decides. The first row that fits wins.
pub(crate) fn decide(ending: Ending) -> Verdict {
    // A program may swallow the error; its run does not go on past a budget.
    if let Some(breach) = &ending.breach {
        return Verdict::Failed(of_host(breach));
    }
    if let Some(value) = ending.returned {
        return Verdict::Completed(value);
    }
    if let Some(failure) = ending.failure {
        return Verdict::Failed(of_loader(failure));
    }
    if let Some(refused) = &ending.refused {
        return Verdict::Failed(of_host(refused));
    }
    match ending.exit {
        Some(Exit::Signal(signal)) => {
            Verdict::Crashed(format!("the program's process was killed by signal {signal}"))
        }
        None => Verdict::Crashed("the program's process cannot be observed".into()),
        Some(Exit::Code(0)) => Verdict::Failed(RunError {
            code: ErrorCode::ProgramError.as_str().into(),
            message: "the program exited without returning".into(),
            hint: Some("return a value from run() instead of exiting".into()),
            reason: None,
        }),
        Some(Exit::Code(code)) => Verdict::Failed(RunError {
            code: ErrorCode::ProgramError.as_str().into(),
            message: ending.last_line.unwrap_or_else(|| format!("the program exited with code {code}")),
            hint: Some("the run's log shows what the program printed before it exited".into()),
            reason: None,
        }),
    }
}

fn of_host(error: &HostErrorBody) -> RunError {
    RunError {
        code: error.code.to_string(),
        message: error.message.clone(),
        hint: error.hint(),
        reason: None,
    }
}

fn of_loader(failure: LoaderFailure) -> RunError {
    let error = failure.error;
    RunError {
        code: error
            .code
            .filter(|code| is_error_code(code))
            .unwrap_or_else(|| ErrorCode::ProgramError.as_str().to_owned()),
        message: if error.message.is_empty() { "the program failed".into() } else { error.message },
        hint: error.hint.filter(|hint| !hint.is_empty()),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::loader::ThrownError;
    use super::*;

    fn failure(code: Option<&str>, message: &str) -> LoaderFailure {
        let error = ThrownError { code: code.map(str::to_owned), message: message.into(), hint: None };
        LoaderFailure { reason: "throw".into(), error }
    }

    fn failed(ending: Ending) -> RunError {
        match decide(ending) {
            Verdict::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_accepted_return_value_wins_over_what_comes_after_it() {
        let ending = Ending {
            returned: Some(RawJson::null()),
            failure: Some(failure(None, "late")),
            exit: Some(Exit::Signal(9)),
            ..Ending::default()
        };
        assert_eq!(decide(ending), Verdict::Completed(RawJson::null()));
    }

    #[test]
    fn a_passed_budget_wins_over_a_program_that_swallowed_it() {
        let breach = HostErrorBody::new(ErrorCode::BudgetExceeded, "over");
        let error =
            failed(Ending { returned: Some(RawJson::null()), breach: Some(breach), ..Ending::default() });
        assert_eq!(error.code, "BUDGET_EXCEEDED");
    }

    #[test]
    fn codes_of_the_program_are_kept_when_they_are_codes() {
        let code = |code| failed(Ending { failure: Some(failure(code, "m")), ..Ending::default() }).code;
        assert_eq!(code(Some("MY_CODE")), "MY_CODE");
        assert_eq!(code(Some("TypeError")), "PROGRAM_ERROR");
        assert_eq!(code(None), "PROGRAM_ERROR");
    }

    #[test]
    fn a_refused_return_value_is_the_error_when_nothing_else_is_known() {
        let refused = HostErrorBody::new(ErrorCode::ValidationFailed, "no").with_hint("do");
        let ending = Ending { refused: Some(refused), exit: Some(Exit::Code(0)), ..Ending::default() };
        let error = failed(ending);
        assert_eq!((error.code.as_str(), error.hint.as_deref()), ("VALIDATION_FAILED", Some("do")));
    }

    #[test]
    fn exits_and_kills_without_a_report_are_told_apart() {
        let exit = |exit, line: Option<&str>| Ending {
            exit: Some(exit),
            last_line: line.map(str::to_owned),
            ..Ending::default()
        };
        assert_eq!(failed(exit(Exit::Code(0), None)).code, "PROGRAM_ERROR");
        assert!(failed(exit(Exit::Code(3), None)).message.contains("code 3"));
        assert_eq!(failed(exit(Exit::Code(3), Some("the reason"))).message, "the reason");
        assert!(
            matches!(decide(exit(Exit::Signal(9), None)), Verdict::Crashed(message) if message.contains('9'))
        );
    }
}
