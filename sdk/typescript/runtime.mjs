// What an engine or a loader imports.
export { HOST_SOCK_ENV, HostClient, connectHost, getHost, peekHost, resetHost } from "./core.mjs";
export { installTestHost } from "./test-host.mjs";
export { HostError, RUN_FATAL_CODES, isRunFatal, reviveBySchema } from "./values.mjs";
export {
  actorSchema, agentWireOptionsSchema, artifactRefSchema, artifactWireBodySchema,
  clientToHostNotifications, clientToHostRequests, contextDataSchema, hostToClientNotifications,
  hostToClientRequests, humanInputResultSchema, humanInputWireOptionsSchema, jsonValueSchema,
  protocolErrorSchema, rpcErrorFrameSchema, rpcFrameSchema, rpcNotificationFrameSchema,
  rpcRequestFrameSchema, rpcSuccessFrameSchema, shellResultSchema, sleepWireArgSchema,
  toolDeclarationSchema, triggerInfoSchema, usageSnapshotSchema,
} from "./wire.mjs";
