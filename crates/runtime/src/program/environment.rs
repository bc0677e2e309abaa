//! What a program finds in its environment: an allow-list, the run's own entries, nothing else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Taken over from this process when set.
const PASSED_ON: [&str; 9] = [
    "PATH",
    "LANG",
    "NODE_USE_ENV_PROXY",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// The environment that a waiting interpreter is started with: it has no run yet.
pub(crate) fn base_environment() -> BTreeMap<String, String> {
    PASSED_ON
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?.into_string().ok()?)))
        .collect()
}

/// The complete environment of a program. What the run brings wins over what the machine brings.
pub(crate) fn program_environment(
    base: &BTreeMap<String, String>,
    workspace: &Path,
    temporary: &Path,
    run: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut environment = base.clone();
    environment.insert("HOME".into(), workspace.display().to_string());
    environment.insert("TMPDIR".into(), temporary.display().to_string());
    environment.extend(run.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment
}

/// Whether an entry has its effect only when it is there as the interpreter starts.
pub(crate) fn needs_cold_start<'a>(mut names: impl Iterator<Item = &'a String>) -> bool {
    names.any(|name| {
        matches!(name.as_str(), "UV_THREADPOOL_SIZE" | "OPENSSL_CONF")
            || ["NODE_", "SSL_CERT_", "LD_"].iter().any(|prefix| name.starts_with(prefix))
    })
}

/// As the operating system takes it.
pub(crate) fn for_process(environment: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    environment.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_entries_win_and_nothing_else_is_there() {
        let base = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let run =
            BTreeMap::from([("HOME".to_owned(), "/elsewhere".to_owned()), ("A".to_owned(), "b".to_owned())]);
        let environment = program_environment(&base, Path::new("/w"), Path::new("/t"), &run);
        let expected = [("A", "b"), ("HOME", "/elsewhere"), ("PATH", "/bin"), ("TMPDIR", "/t")];
        assert_eq!(environment, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn names_that_an_interpreter_reads_at_its_start_are_known() {
        for name in [
            "NODE_OPTIONS",
            "NODE_EXTRA_CA_CERTS",
            "UV_THREADPOOL_SIZE",
            "OPENSSL_CONF",
            "SSL_CERT_DIR",
            "LD_PRELOAD",
        ] {
            assert!(needs_cold_start([name.to_owned()].iter()), "{name}");
        }
        for name in ["PATH", "MY_NODE_OPTIONS", "LDAP_URL", "SSL", "node_options"] {
            assert!(!needs_cold_start([name.to_owned()].iter()), "{name}");
        }
    }
}
