// What an engine or a loader imports.
import { load } from "./core.mjs";

export {
  HOST_SOCK_ENV, HostClient, connectHost, getHost, installTestHost, peekHost, resetHost,
} from "./core.mjs";
export { HostError, RUN_FATAL_CODES, isRunFatal, reviveBySchema } from "./values.mjs";
export const {
  actorSchema, agentWireOptionsSchema, artifactRefSchema, artifactWireBodySchema,
  clientToHostNotifications, clientToHostRequests, contextDataSchema, hostToClientNotifications,
  hostToClientRequests, humanInputResultSchema, humanInputWireOptionsSchema, jsonValueSchema,
  protocolErrorSchema, rpcErrorFrameSchema, rpcFrameSchema, rpcNotificationFrameSchema,
  rpcRequestFrameSchema, rpcSuccessFrameSchema, shellResultSchema, sleepWireArgSchema,
  toolDeclarationSchema, triggerInfoSchema, usageSnapshotSchema,
} = load("./wire.cjs");
