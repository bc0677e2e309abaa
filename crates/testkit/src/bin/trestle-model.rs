//! The scripted model as a program of its own: `trestle-model --script FILE [--listen ADDRESS] [--ready-file FILE]`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use trestle_testkit::model_server::{ModelServer, Script};

/// A model endpoint that says what a script tells it, on the OpenAI and the Anthropic wire.
#[derive(Debug, Parser)]
#[command(name = "trestle-model")]
struct Arguments {
    /// The script; its format is described in MODEL_SCRIPT.md.
    #[arg(long)]
    script: PathBuf,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Written with the address once the server listens.
    #[arg(long)]
    ready_file: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let path = arguments.script.display();
    let text = std::fs::read_to_string(&arguments.script).map_err(|error| format!("{path}: {error}"))?;
    let script = Script::parse(&text).map_err(|error| format!("{path}: {error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let server = ModelServer::listen(script, arguments.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", arguments.listen))?;
        let url = server.url();
        writeln!(std::io::stdout(), "listening {url}").map_err(|error| error.to_string())?;
        if let Some(file) = &arguments.ready_file {
            // Appears whole: a reader that sees it can use it.
            let partial = file.with_extension("partial");
            std::fs::write(&partial, &url)
                .and_then(|()| std::fs::rename(&partial, file))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        stop_signal().await
    })
}

async fn stop_signal() -> Result<(), String> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| error.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupt = tokio::signal::ctrl_c() => interrupt.map_err(|error| error.to_string())?,
    }
    Ok(())
}
