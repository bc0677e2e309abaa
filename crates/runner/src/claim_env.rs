use std::collections::BTreeMap;

/// What this machine decides, or what the platform tells a run process: an author does not set these
/// (`docs/protocol/pool.md` §7).
const RESERVED: [&str; 14] = [
    "RUN_ID",
    "BOARDWALK_CONTROL_PLANE_URL",
    "BOARDWALK_RUN_TOKEN",
    "BOARDWALK_API_KEY",
    "BOARDWALK_BYO_PROVIDERS",
    "BOARDWALK_TASK_CPU_UNITS",
    "BOARDWALK_IDENTITY_RELAY_FD",
    "BOARDWALK_HOST_SOCK",
    "BOARDWALK_RUNNER_DEBUG",
    "BOARDWALK_RUNNER_LOG_LEVEL",
    "WORKER_ID",
    "WORKSPACE_ROOT",
    "PROGRAM_ROOT",
    "PERSIST_SCOPE_DIR",
];
/// Settings of the machine's browser, screen and recording.
const RESERVED_PREFIXES: [&str; 5] = [
    "BOARDWALK_BROWSER_",
    "BOARDWALK_DESKTOP_",
    "BOARDWALK_SCREEN_",
    "BOARDWALK_RECORDING_",
    "BOARDWALK_LIVEVIEW_",
];
/// Where the machine's operator has the last word when they said something.
const OPERATORS: [&str; 7] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "NODE_USE_ENV_PROXY"];

/// The entries of a claim's environment that the program gets, and the names of those that it does not.
pub(crate) fn program_entries(
    claimed: &BTreeMap<String, String>,
    machine: &[(String, String)],
) -> (BTreeMap<String, String>, Vec<String>) {
    let mut dropped = Vec::new();
    let kept = claimed
        .iter()
        .filter(|(name, value)| {
            let keeps = passable(name, value) && !reserved(name) && !of_the_operator(name, machine);
            if !keeps {
                dropped.push(name.escape_debug().take(128).collect());
            }
            keeps
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (kept, dropped)
}

/// Whether an operating system can pass the entry at all.
fn passable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn reserved(name: &str) -> bool {
    RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn of_the_operator(name: &str, machine: &[(String, String)]) -> bool {
    OPERATORS.contains(&name) && machine.iter().any(|(set, _)| set == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_impossible_and_operator_entries_do_not_reach_a_program() {
        let machine = [("HTTPS_PROXY".to_owned(), "http://proxy".to_owned())];
        let claimed: BTreeMap<String, String> = [
            ("REGION", "eu"),
            ("BOARDWALK_ORG", "theirs"),
            ("PATH", "/opt/bin"),
            ("NODE_OPTIONS", "--no-warnings"),
            ("http_proxy", "http://own"),
            ("EMPTY", ""),
            ("RUN_ID", "another"),
            ("BOARDWALK_RUN_TOKEN", "x"),
            ("BOARDWALK_IDENTITY_RELAY_FD", "3"),
            ("PROGRAM_ROOT", "/etc"),
            ("BOARDWALK_RECORDING_ENABLED", "0"),
            ("BOARDWALK_BROWSER_TIER", "1"),
            ("HTTPS_PROXY", "http://evil"),
            ("", "no name"),
            ("A=B", "a name with an equals sign"),
            ("NUL\0", "x"),
            ("VALUE", "with \0 in it"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let (kept, dropped) = program_entries(&claimed, &machine);
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["BOARDWALK_ORG", "EMPTY", "NODE_OPTIONS", "PATH", "REGION", "http_proxy"]);
        assert_eq!(dropped.len(), claimed.len() - kept.len());
        assert!(dropped.iter().all(|name| !name.contains('\0')));
    }
}
