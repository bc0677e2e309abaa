use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use trestle_cli::commands;

/// Durable AI-agent workflows: write a function, run it, deploy it, watch it live.
#[derive(Debug, Parser)]
#[command(name = "trestle", version, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a workflow to start from
    Init(commands::InitArgs),
    /// Check descriptor, syntax and imports, without a server
    Check(commands::CheckArgs),
    /// Run a workflow now, without a server of your own: log on stderr, output on stdout
    Dev(Box<DevArgs>),
    /// Start the server and a runner in one process
    Up(Box<UpArgs>),
    /// Deploy a workflow
    Deploy {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::DeployArgs,
    },
    /// Start a run of a deployed workflow and wait for it
    Run {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::RunArgs,
    },
    /// List runs, or show one, its log so far, or its log as it comes
    Runs {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::RunsArgs,
    },
    /// Cancel a run
    Cancel {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::CancelArgs,
    },
    /// List, show, delete, disable or enable workflows
    Workflows {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::WorkflowsCommand,
    },
    /// List, set or delete secrets
    Secrets {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::SecretsCommand,
    },
    /// List, add or delete model providers that programs name
    Inference {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        args: commands::InferenceCommand,
    },
    /// List runners
    Runners {
        #[command(flatten)]
        server: ServerOptions,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add this machine as a runner, run it, remove it
    Runner {
        #[command(subcommand)]
        action: RunnerCommand,
    },
    #[command(name = "__run", hide = true)]
    RunProcess(RunProcessArgs),
}

/// Which server a command talks to.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Server; default TRESTLE_URL, BOARDWALK_API_URL, or the one of the data directory
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Token; default TRESTLE_TOKEN, BOARDWALK_API_KEY, or the one of the data directory
    #[arg(long, global = true, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Data directory of a server on this machine
    #[arg(long, global = true, env = "TRESTLE_DATA", default_value = "./trestle-data", value_name = "DIR")]
    pub(crate) data: PathBuf,
}

/// The model that answers agent calls which name no provider of their own.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// Model of agent calls that name none
    #[arg(long, env = "TRESTLE_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Wire of the model's endpoint
    #[arg(long, env = "TRESTLE_MODEL_PROVIDER", value_enum, default_value_t = ModelProvider::OpenaiCompatible)]
    pub(crate) model_provider: ModelProvider,
    /// Address of the model's endpoint
    #[arg(long, env = "TRESTLE_MODEL_URL", value_name = "URL")]
    pub(crate) model_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelProvider {
    #[value(name = "openai_compatible")]
    OpenaiCompatible,
    #[value(name = "anthropic")]
    Anthropic,
}

/// How the runner of this process works.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkOptions {
    /// Runs that may work at the same time; default: the number of cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) slots: Option<u16>,
    /// Interpreters that stand by for the next run
    #[arg(long, value_name = "N")]
    pub(crate) prestart: Option<u16>,
    /// Length of a run's lease, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(5..=3600))]
    pub(crate) lease: u64,
    /// Node to run programs with; default: `node` on PATH
    #[arg(long, env = "TRESTLE_NODE", value_name = "PATH")]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Data directory
    #[arg(long, env = "TRESTLE_DATA", default_value = "./trestle-data", value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "TRESTLE_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Address that others reach this server under; default: the listen address
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) work: WorkOptions,
    /// Start no runner in this process
    #[arg(long)]
    pub(crate) no_runner: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The workflow's directory
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Input: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// A secret: NAME takes the value of the environment variable NAME, NAME=@FILE that of a file
    #[arg(long = "secret", value_name = "NAME[=@FILE]")]
    pub(crate) secrets: Vec<String>,
    /// File of NAME=VALUE lines; each is a secret of the run
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Another workflow that this one calls
    #[arg(long = "with", value_name = "DIR")]
    pub(crate) with: Vec<PathBuf>,
    /// Run although a field of a descriptor has no effect here
    #[arg(long)]
    pub(crate) allow_unsupported: bool,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) work: WorkOptions,
    #[arg(long, hide = true, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    #[arg(long, hide = true)]
    pub(crate) public_url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// Mint a registration token and print the line that uses it
    Token {
        #[command(flatten)]
        server: ServerOptions,
        /// Pool that the runner joins
        #[arg(long, default_value = "default")]
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Redeem a registration token and save this machine's identity
    Register {
        /// Server to work for
        #[arg(long)]
        url: String,
        /// Registration token
        #[arg(long)]
        token: String,
        /// Display name; default: the host name
        #[arg(long)]
        name: Option<String>,
        /// Labels, separated by commas
        #[arg(long, value_delimiter = ',')]
        labels: Vec<String>,
        #[command(flatten)]
        identity: IdentityOptions,
    },
    /// Work for a server until drained
    Start(Box<RunnerStartArgs>),
    /// Let a runner finish what it has and claim nothing more
    Drain {
        #[command(flatten)]
        server: ServerOptions,
        /// The runner, as `trestle runners` lists it
        runner: String,
    },
    /// Let a drained runner claim again
    Resume {
        #[command(flatten)]
        server: ServerOptions,
        /// The runner, as `trestle runners` lists it
        runner: String,
    },
    /// Remove a runner; its token is dead at once and its runs start over elsewhere
    Remove {
        #[command(flatten)]
        server: ServerOptions,
        /// The runner, as `trestle runners` lists it
        runner: String,
        /// Really remove it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        identity: IdentityOptions,
    },
    /// Remove this machine from its pool
    Deregister {
        /// Server
        #[arg(long)]
        url: String,
        /// Pool
        #[arg(long, default_value = "default")]
        pool: String,
        #[command(flatten)]
        identity: IdentityOptions,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct IdentityOptions {
    /// Where identities are kept; default ~/.boardwalk/runner
    #[arg(long, value_name = "DIR")]
    pub(crate) identity_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunnerStartArgs {
    /// Server to work for
    #[arg(long)]
    pub(crate) url: String,
    /// Pool
    #[arg(long, default_value = "default")]
    pub(crate) pool: String,
    /// Run programs as this user, without isolation
    #[arg(long)]
    pub(crate) host: bool,
    /// Where runs live while they run; default: `work` below the identity directory
    #[arg(long, value_name = "DIR")]
    pub(crate) work_dir: Option<PathBuf>,
    /// End after one run
    #[arg(long)]
    pub(crate) once: bool,
    /// End when no run came for so long, with exit code 4
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) idle: Option<u64>,
    /// Display name if this machine has to join the pool first; default: the host name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Labels if this machine has to join the pool first, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// An administrator's token: joins the pool if needed, again if this runner was removed; default TRESTLE_TOKEN,
    /// BOARDWALK_API_KEY
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
    #[command(flatten)]
    pub(crate) work: WorkOptions,
}

/// The command line of a run process alone. One is started for each run, and to build the whole command line takes
/// longer than to read this one.
#[derive(Debug, Parser)]
pub(crate) struct RunProcess {
    #[command(flatten)]
    pub(crate) args: RunProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunProcessArgs {
    #[arg(long)]
    slot_fd: i32,
    #[arg(long)]
    slot_dir: PathBuf,
    #[arg(long, requires_all = ["node", "node_version"])]
    prestart: bool,
    #[arg(long)]
    node: Option<PathBuf>,
    #[arg(long)]
    node_version: Option<String>,
}

impl From<RunProcessArgs> for trestle_runtime::RunArgs {
    fn from(args: RunProcessArgs) -> Self {
        let node = args.node.zip(args.node_version);
        let prestart = node
            .filter(|_| args.prestart)
            .map(|(path, version)| trestle_sandbox::slot::NodeRuntime { path, version });
        Self {
            slot_fd: args.slot_fd,
            slot_dir: args.slot_dir,
            prestart,
            run_log: ["TRESTLE_RUN_LOG_FILE", "BOARDWALK_RUN_LOG_FILE"]
                .into_iter()
                .find_map(|name| std::env::var_os(name).filter(|path| !path.is_empty()))
                .map(PathBuf::from),
            timing: trestle_runtime::Timing::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_run_process_reads_its_arguments_as_the_whole_command_line_does() {
        let words = [
            "__run",
            "--slot-fd",
            "3",
            "--slot-dir",
            "/s",
            "--prestart",
            "--node",
            "/n",
            "--node-version",
            "24.0.0",
        ];
        let alone = RunProcess::try_parse_from(words).unwrap().args;
        let whole = Arguments::try_parse_from([&["trestle"], words.as_slice()].concat()).unwrap().command;
        let Command::RunProcess(whole) = whole else { panic!("{whole:?}") };
        assert_eq!(format!("{alone:?}"), format!("{whole:?}"));
        assert!(RunProcess::try_parse_from(["__run", "--slot-fd", "3"]).is_err());
    }
}
