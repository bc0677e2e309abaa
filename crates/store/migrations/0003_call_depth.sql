-- From a run to who called it, for the depth of a chain of calls.
CREATE INDEX run_children_child ON run_children (child);
