//! What a program can find out about the machine that runs it, and what it leaves there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;

use support::{Machine, finish, processes_with};

const SPY: &str = r#"
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { execFileSync } from 'node:child_process';
const read = (path) => { try { return readFileSync(path, 'latin1'); } catch (error) { return `(${error.code})`; } };
const chain = () => {
  const found = [];
  for (let pid = process.ppid; pid > 1 && found.length < 8;) {
    const stat = read(`/proc/${pid}/stat`);
    found.push({ pid, environ: read(`/proc/${pid}/environ`), cmdline: read(`/proc/${pid}/cmdline`), comm: stat });
    pid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  }
  return found;
};
export default () => ({
  env: process.env,
  argv: [process.argv, process.execArgv],
  cwd: process.cwd(), home: homedir(), tmp: tmpdir(),
  own: [read('/proc/self/environ'), read('/proc/self/cmdline')],
  fds: readdirSync('/proc/self/fd').map((fd) => { try { return readlinkSync(`/proc/self/fd/${fd}`); } catch { return null; } }),
  childFds: execFileSync('ls', ['-l', '/proc/self/fd'], { encoding: 'utf8' }),
  parents: chain(),
});
"#;

#[test]
fn a_program_finds_no_token_and_no_variable_of_the_host() {
    let machine = Machine::new();
    for prestart in ["0", "1"] {
        machine.workflow_with(
            "spy",
            r#"{"slug":"spy","triggers":[{"kind":"manual"}],"env":{"REGION":"eu","NAMED":"x"}}"#,
            SPY,
        );
        let mut command = machine.trestle(["dev", "spy", "--prestart", prestart]);
        command
            .env("HOST_CANARY", "host-canary-value")
            .env("AWS_SECRET_ACCESS_KEY", "host-canary-value")
            .env("TRESTLE_MODEL_KEY", "model-key-canary");
        let seen = finish(&mut command).ok().json();
        let text = seen.to_string();
        for token in ["bwrt_", "bwk_", "bwkr_", "bwkreg_", "model-key-canary"] {
            // The runner in the same process as the terminal inherits the person's environment; run process and program must not.
            let own = [
                &seen["env"],
                &seen["argv"],
                &seen["own"],
                &seen["fds"],
                &seen["childFds"],
                &seen["parents"][0],
            ];
            assert!(own.iter().all(|part| !part.to_string().contains(token)), "{token} in {text}");
            assert!(!token.starts_with("bw") || !text.contains(token), "{token} in {text}");
        }
        let allowed = ["PATH", "LANG", "HOME", "TMPDIR", "BOARDWALK_HOST_SOCK", "REGION", "NAMED"];
        for name in seen["env"].as_object().unwrap().keys() {
            assert!(allowed.contains(&name.as_str()), "{name} in the program's environment");
        }
        assert!(!seen["parents"][0].to_string().contains("host-canary"), "{}", seen["parents"][0]);
        assert_eq!(seen["env"]["REGION"], "eu");
        assert_eq!(seen["home"], seen["cwd"]);
        assert_ne!(seen["tmp"], seen["cwd"]);
        // Beyond its standard streams a child of the program holds the directory that it lists, and nothing else.
        let held = seen["childFds"].as_str().unwrap().lines().filter(|line| line.contains(" -> ")).count();
        assert_eq!(held, 4, "{}", seen["childFds"]);
    }
}

#[test]
fn a_program_that_rewrites_its_own_files_does_not_change_the_next_run() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "1"]);
    let source = "import { readdirSync, statSync, writeFileSync, readFileSync } from 'node:fs';\nimport { join } from 'node:path';\nconst here = new URL('.', import.meta.url).pathname;\nconst all = (d) => readdirSync(d, { withFileTypes: true }).flatMap((e) => e.name === 'node_modules' ? [] : e.isDirectory() ? all(join(d, e.name)) : [join(d, e.name)]);\nimport * as sdk from '@trestle/workflow';\nexport default () => { const files = all(here); const dirty = files.some((f) => readFileSync(f, 'utf8').startsWith('//spoiled')); for (const f of files) writeFileSync(f, '//spoiled'); return { dirty, links: Math.max(...files.map((f) => statSync(f).nlink)), sdk: typeof sdk.agent }; };\n";
    up.deploy("spoiler", source);
    for _ in 0..3 {
        let run = up.run(&["run", "spoiler"]).ok().json();
        assert_eq!(run, serde_json::json!({ "dirty": false, "links": 1, "sdk": "function" }));
    }
    up.stop().ok();
}

#[test]
fn nothing_that_a_run_started_outlives_it() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let source = "import { spawn } from 'node:child_process';\nimport { shell } from '@trestle/workflow';\nexport default async () => { spawn('setsid', ['sh', '-c', 'trap \"\" TERM HUP INT; echo up; while :; do sleep 1; done'], { stdio: 'inherit', detached: true }).unref(); await shell('(trap \"\" TERM; sleep 1000) > /dev/null 2>&1 &'); console.log('started'); return process.env.TMPDIR; };\n";
    up.deploy("litter", source);
    let run = up.run(&["run", "litter", "--follow"]).ok().says("started");
    let tmp = run.out.trim();
    let slot = std::path::Path::new(tmp).parent().unwrap().to_owned();
    support::eventually("the slot is removed", || !slot.exists());
    let marker = slot.to_str().unwrap();
    assert_eq!(processes_with(marker), Vec::<i32>::new());
    let slots = slot.parent().unwrap();
    assert_eq!(fs::read_dir(slots).unwrap().count(), 0);
    // The record of its lease goes after its directory.
    let leases = slots.with_file_name("leases");
    support::eventually("the lease is let go", || fs::read_dir(&leases).unwrap().count() == 0);
    up.stop().ok();
}

#[test]
fn a_killed_server_takes_its_programs_with_it_and_runs_them_again() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "1"]);
    let flag = machine.home.path().join("flag");
    let source = format!(
        "import {{ existsSync }} from 'node:fs';\nexport default async (_, context) => {{ console.log('attempt', context.attempt); if (!existsSync({flag:?})) await new Promise(() => setInterval(() => {{}}, 1000)); return context.attempt; }};\n"
    );
    up.deploy("survivor", &source);
    let id = up.run(&["run", "survivor", "--no-wait"]).ok().out.trim().to_owned();
    support::eventually("the program is at work", || {
        up.run(&["runs", &id, "--logs", "--stream", "log"]).out.contains("attempt 1")
    });
    up.running.signal(nix::sys::signal::Signal::SIGKILL);
    drop(up);
    let marker = machine.home.path().join("data").to_str().unwrap().to_owned();
    support::eventually("no process is left", || processes_with(&marker).is_empty());
    fs::write(&flag, "").unwrap();
    let up = machine.up(&["--prestart", "0"]);
    up.run(&["runs", &id, "--follow"]).ok();
    let detail = up.run(&["runs", &id, "--json"]).ok().json();
    assert_eq!(
        (detail["run"]["status"].as_str(), detail["run"]["output"].as_u64()),
        (Some("completed"), Some(2)),
        "{detail}"
    );
    up.stop().ok();
}
