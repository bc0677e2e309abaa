use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where a command writes: data to `out`, everything else to `err`.
#[derive(Clone)]
pub struct Terminal {
    out: Arc<Mutex<dyn Write + Send>>,
    err: Arc<Mutex<dyn Write + Send>>,
    live: bool,
}

impl Terminal {
    /// The process's own streams. Progress is drawn when standard error is a terminal.
    #[must_use]
    pub fn standard() -> Self {
        let live = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { out: Arc::new(Mutex::new(io::stdout())), err: Arc::new(Mutex::new(io::stderr())), live }
    }

    /// Given writers; progress as plain lines.
    #[must_use]
    pub fn capture(out: Arc<Mutex<dyn Write + Send>>, err: Arc<Mutex<dyn Write + Send>>) -> Self {
        Self { out, err, live: false }
    }

    /// Writes data, with a line end.
    ///
    /// # Errors
    /// When the other end is gone, so that a command whose reader left can stop.
    pub fn data(&self, text: &str) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Writes text as it is to the data side.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn data_raw(&self, text: &str) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Writes text as it is to the side of messages. A gone reader is no reason to stop the work.
    pub fn side(&self, text: &str) {
        let mut err = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// Writes a message line.
    pub fn note(&self, text: &str) {
        self.side(&format!("{text}\n"));
    }

    /// Names a step that a person waits for; the step ends when the guard is dropped or finished.
    #[must_use]
    pub fn step(&self, name: &str) -> Step {
        if !self.live {
            self.note(&format!("… {name}"));
            return Step { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        // The template is a constant that the library accepts; its default is as good.
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_message(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Step { bar: Some(bar) }
    }
}

/// A step in progress.
pub struct Step {
    bar: Option<ProgressBar>,
}

impl Step {
    /// Says how far it is.
    pub fn update(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
