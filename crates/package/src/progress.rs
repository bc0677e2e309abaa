//! What a person who waits for a build is told.

/// A named step of a build, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reading and checking the descriptor.
    ReadDescriptor,
    /// Following imports from the entry and transforming modules.
    FollowImports,
    /// Finding sources and assets.
    CollectFiles,
    /// Writing the tar and its digest.
    Pack,
}

impl Step {
    /// The step as a person reads it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadDescriptor => "Reading the descriptor",
            Self::FollowImports => "Following imports",
            Self::CollectFiles => "Collecting files",
            Self::Pack => "Packing",
        }
    }
}

/// Is told when steps begin, move on and end. Steps never overlap.
pub trait Progress {
    /// A step begins.
    fn started(&self, step: Step);

    /// Something of the step is done: `count` files so far.
    fn advanced(&self, _step: Step, _count: usize) {}

    /// A step has ended.
    fn finished(&self, _step: Step) {}
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn started(&self, _step: Step) {}
}

impl<F: Fn(Step)> Progress for F {
    fn started(&self, step: Step) {
        self(step);
    }
}
