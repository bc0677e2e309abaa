use std::cell::RefCell;

use trestle_package::{Progress, Step};

use crate::Terminal;

/// Shows the steps of a build.
pub struct BuildSteps<'a> {
    terminal: &'a Terminal,
    running: RefCell<Option<crate::terminal::Step>>,
}

impl<'a> BuildSteps<'a> {
    /// Shows them on `terminal`.
    #[must_use]
    pub fn new(terminal: &'a Terminal) -> Self {
        Self { terminal, running: RefCell::new(None) }
    }
}

impl Progress for BuildSteps<'_> {
    fn started(&self, step: Step) {
        let label = step.label();
        self.running.replace(Some(self.terminal.step(label)));
    }

    fn advanced(&self, step: Step, count: usize) {
        if let Some(running) = &*self.running.borrow() {
            running.update(&format!("{} ({count} files)", step.label()));
        }
    }

    fn finished(&self, _step: Step) {
        self.running.replace(None);
    }
}
