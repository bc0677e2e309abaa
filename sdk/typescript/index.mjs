// What a workflow program imports.
export {
  agent, artifacts, auth, computer, humanInput, normalizeReasoning, parallel, phase, secrets, shell,
  sleep, usage, workflows,
} from "./author.mjs";
export {
  DEFAULT_ENTRY_SOURCES, DescriptorValidationError, GITHUB_TRIGGER_EVENTS, JIRA_TRIGGER_EVENTS,
  LINEAR_TRIGGER_EVENTS, NOTION_TRIGGER_EVENTS, PYTHON_DEFAULT_ENTRY, parseJsonc,
  parseWorkflowDescriptor, splitFallback, validateConcurrencyKeyTemplate, workflowManifestSchema,
} from "./descriptor.mjs";
export {
  CHANNELS, DEFAULT_CHANNELS, TURN_CURSOR_STRIDE, channelOf, makeCursor, matchesChannels,
  parseRunEventLenient, runEventSchema,
} from "./events.mjs";
export { installTestHost } from "./test-host.mjs";
export { HostError, RUN_FATAL_CODES, isRunFatal } from "./values.mjs";
